"""Where converted models are kept."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """`PAGEMILL_CACHE_DIR`, else the user's cache folder for pagemill."""
    if configured := os.environ.get("PAGEMILL_CACHE_DIR"):
        return Path(configured).expanduser()
    return Path(platformdirs.user_cache_dir("pagemill", appauthor=False))
