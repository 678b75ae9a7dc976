"""What the scheduler counts."""

from __future__ import annotations

from dataclasses import dataclass

from engine.blocks import BlockPool
from engine.swap_space import SwapSpace


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Counts since the start, and how the KV pool and the swap space stand now.

    Attributes:
        steps: batches that were planned.
        prompt_tokens: prompt tokens of the requests that were admitted; each request once.
        cached_tokens: those of them that were found in the prefix cache.
        generated_tokens: tokens that requests were given.
        late_tokens: tokens that were sampled for a request after it had ended, and discarded.
        preemptions: times a sequence lost its blocks to another.
        swap_outs: those of them whose KV was kept in host memory; that of the others is
            computed again.
        swap_ins: times that such a sequence came back into the batch.
        blocks_used: blocks that sequences hold.
        blocks_cached: blocks kept for the prefix cache alone, taken back when needed.
        blocks_total: size of the pool.
        swap_blocks_used: host blocks that preempted sequences hold.
        swap_blocks_total: size of the swap space.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    late_tokens: int = 0
    preemptions: int = 0
    swap_outs: int = 0
    swap_ins: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0
    swap_blocks_used: int = 0
    swap_blocks_total: int = 0


@dataclass(slots=True)
class Counters:
    """The running counts behind `SchedulerStats`."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    late_tokens: int = 0
    preemptions: int = 0
    swap_outs: int = 0
    swap_ins: int = 0

    def snapshot(self, pool: BlockPool, swap_space: SwapSpace) -> SchedulerStats:
        return SchedulerStats(
            **{name: getattr(self, name) for name in self.__slots__},
            blocks_used=pool.num_used,
            blocks_cached=pool.num_cached,
            blocks_total=pool.num_blocks,
            swap_blocks_used=swap_space.num_used,
            swap_blocks_total=swap_space.num_blocks,
        )
