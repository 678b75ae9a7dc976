"""What the scheduler counts."""

from __future__ import annotations

from dataclasses import dataclass

from engine.blocks import BlockPool


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Counts since the start, and how the KV pool stands now.

    Attributes:
        steps: batches that were planned.
        prompt_tokens: prompt tokens of the requests that were admitted; each request once.
        cached_tokens: those of them that were found in the prefix cache.
        generated_tokens: tokens that requests were given.
        preemptions: times a sequence lost its blocks to another.
        blocks_used: blocks that sequences hold.
        blocks_cached: blocks kept for the prefix cache alone, taken back when needed.
        blocks_total: size of the pool.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0


@dataclass(slots=True)
class Counters:
    """The running counts behind `SchedulerStats`."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0

    def snapshot(self, pool: BlockPool) -> SchedulerStats:
        return SchedulerStats(
            self.steps,
            self.prompt_tokens,
            self.cached_tokens,
            self.generated_tokens,
            self.preemptions,
            pool.num_used,
            pool.num_cached,
            pool.num_blocks,
        )
