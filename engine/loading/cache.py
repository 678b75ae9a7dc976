"""Where converted models and compiled kernels are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`PAGEMILL_CACHE_DIR`, else the user's cache folder for pagemill."""
    if configured := os.environ.get("PAGEMILL_CACHE_DIR"):
        return Path(configured).expanduser()
    import platformdirs  # not needed, and may be missing, where a folder is named

    return Path(platformdirs.user_cache_dir("pagemill", appauthor=False))


def prepare_triton() -> None:
    """Settle how Triton compiles in this process, before it is imported.

    What it compiles is kept beside our models, so that the next start finds it. Products and sums
    are fused, as our kernels were looked at; later versions do so only where they are told.
    Variables that the user has set stay as they are.
    """
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder() / "triton"))
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
