"""Python as on a machine that was set up to compute and for nothing else."""

from __future__ import annotations

import sys
from typing import Any

MISSING = frozenset(
    {"alembic", "celery", "gguf", "hypothesis", "jobs", "kombu", "llguidance", "migrations",
     "orjson", "platformdirs", "prometheus_client", "pyarrow", "pytest", "redis", "sqlalchemy",
     "worker"}
)  # fmt: skip


class _Without:
    """A finder that finds nothing of what is missing."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, fullname: str, *places: Any) -> Any:
        if fullname.partition(".")[0] in MISSING:
            return None
        return self._finder.find_spec(fullname, *places)


sys.meta_path[:] = [_Without(finder) for finder in sys.meta_path]
