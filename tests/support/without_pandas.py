"""A process that has no pandas, though it is installed: Arrow would load it unasked.

Standard library only, so that a `sitecustomize` can have it before anything else is imported.
"""

from __future__ import annotations

import sys
from typing import Any


class _Finder:
    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def hide_pandas() -> None:
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
