"""Whether two engines say the same, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def agreement(
    reference: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """How many rows are equal, and where each of the others parts from the reference.

    Outputs may be fewer than the references, where an engine ran on a subset.
    """
    pairs = list(zip(reference, outputs, strict=False))
    apart = [(i, *_first_divergence(a, b)) for i, (a, b) in enumerate(pairs) if list(a) != list(b)]
    return {
        "prompts": len(pairs),
        "equal": len(pairs) - len(apart),
        "first_divergences": [
            {"row": row, "token": at, "reference": expected, "output": found}
            for row, at, expected, found in apart
        ],
    }


def _first_divergence(a: Sequence[int], b: Sequence[int]) -> tuple[int, int | None, int | None]:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if at is None:  # one is the beginning of the other
        at = min(len(a), len(b))
    return at, *(tokens[at] if at < len(tokens) else None for tokens in (a, b))
