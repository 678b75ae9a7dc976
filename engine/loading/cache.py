"""Where converted models are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`PAGEMILL_CACHE_DIR`, else the user's cache folder for pagemill."""
    if configured := os.environ.get("PAGEMILL_CACHE_DIR"):
        return Path(configured).expanduser()
    import platformdirs  # not needed, and may be missing, where a folder is named

    return Path(platformdirs.user_cache_dir("pagemill", appauthor=False))
