"""Whether copying a preempted sequence's KV to the host and back beats computing it again."""

from __future__ import annotations

import math


class SwapCost:
    """Compares what both ways take, from what was measured here.

    A token is taken to cost what it did in the fastest step so far: what is computed again rides
    in steps with others, and the weights are read for all of them once. Attention to a long
    prefix makes it dearer, so where both are about equal it is computed again.

    Args:
        block_seconds: of copying one block to the host and back. The default always swaps.
    """

    def __init__(self, block_seconds: float = 0.0) -> None:
        self._block_seconds = block_seconds
        self._token_seconds = math.inf

    def observe(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens in so many seconds."""
        self._token_seconds = min(self._token_seconds, seconds / tokens)

    def is_lower(self, blocks: int, tokens: int) -> bool:
        """Whether to copy `blocks` rather than to compute the `tokens` in them again."""
        return blocks * self._block_seconds < tokens * self._token_seconds
