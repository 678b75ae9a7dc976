"""An engine on the CPU that checks itself."""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from engine.core import Engine


def engine_of(model: object, **settings: Any) -> Engine:
    """In float32, with a small KV pool, unless the settings say otherwise."""
    return Engine(
        EngineConfig(
            **{
                "model": str(model), "device": "cpu", "dtype": "float32", "num_blocks": 512,
                "check_invariants": True, **settings,
            }
        )
    )  # fmt: skip
