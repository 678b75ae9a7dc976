"""Short names of models that every worker knows; `engine.loading.alias` has their files."""

from __future__ import annotations

MODEL_ALIASES = {"smollm2-135m": "a small model"}
