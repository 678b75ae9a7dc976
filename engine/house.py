"""Is the `kernels` package that Python finds really ours?"""

from __future__ import annotations

from pathlib import Path

import kernels
from engine.errors import EngineError


def check_kernels_package() -> None:
    """Refuse to start on another distribution's `kernels`.

    Hugging Face publishes a distribution `kernels` with the same import name. Installed side
    by side, one overwrites the other's files without any error, or comes first on the path.

    Raises:
        EngineError: says what to uninstall.
    """
    ours = Path(__file__).resolve().parent.parent / "kernels"
    found = Path(kernels.__file__ or "").resolve().parent
    if found != ours or getattr(kernels, "DISTRIBUTION", None) != "pagemill":
        raise EngineError(
            f"`import kernels` gives {found}, which is not pagemill's own package ({ours}): "
            "Hugging Face's distribution `kernels` has the same name. Run "
            "`pip uninstall kernels`, then install pagemill again"
        )
