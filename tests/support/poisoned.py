"""Rows that kill the engine that computes them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.tiny_model import byte_tokenizer

POISON = "POISON"  # an engine of the environment below dies of a prompt with this text
PATCH = Path(__file__).parent / "poison"


def poison(how: str = "kill", at_token: int = 3) -> dict[str, str]:
    """Variables of the environment in which engines die.

    Args:
        how: `kill` (SIGKILL), `raise` (an unexpected error), `add` (one that comes when the row is
            queued), `garble` (sends what is no message), `hang` (says nothing any more) or `host`
            (SIGKILL of the worker too).
        at_token: how many tokens of its answer the row has then; 0 is its first step.
    """
    path = os.pathsep.join(filter(None, [str(PATCH), os.environ.get("PYTHONPATH")]))
    return {
        "PYTHONPATH": path,
        "POISON_TOKENS": ",".join(map(str, poison_tokens())),
        "POISON_DEATH": how,
        "POISON_AT_TOKEN": str(at_token),
    }


def poison_tokens() -> tuple[int, ...]:
    return tuple(byte_tokenizer().encode(POISON, add_special_tokens=False))
