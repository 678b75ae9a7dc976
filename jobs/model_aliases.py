"""Short names of models that every worker knows; `engine.loading.alias` has their files."""

from __future__ import annotations

import difflib
from pathlib import Path

MODEL_ALIASES = {"smollm2-135m": "a small model"}


def meant_alias(model: str) -> str | None:
    """The alias that was perhaps meant by a name that is no path, no `owner/name` and no alias."""
    if "/" in model or model in MODEL_ALIASES or Path(model).exists():
        return None
    return next(iter(difflib.get_close_matches(model.lower(), MODEL_ALIASES, 1)), None)
