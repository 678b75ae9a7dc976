"""Where converted models and compiled kernels are kept."""

from __future__ import annotations

import os
from pathlib import Path

# Triton's own; it must be set before triton is imported.
_TRITON_VARIABLE = "TRITON_CACHE_DIR"


def cache_folder() -> Path:
    """`PAGEMILL_CACHE_DIR`, else the user's cache folder for pagemill."""
    if configured := os.environ.get("PAGEMILL_CACHE_DIR"):
        return Path(configured).expanduser()
    import platformdirs  # not needed, and may be missing, where a folder is named

    return Path(platformdirs.user_cache_dir("pagemill", appauthor=False))


def keep_compiled_kernels() -> None:
    """Let Triton keep what it compiles beside our models, so that the next start finds it.

    Where the user has named a folder for it, that one stays.
    """
    os.environ.setdefault(_TRITON_VARIABLE, str(cache_folder() / "triton"))
