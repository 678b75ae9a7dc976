"""Which waiting sequences enter the batch, and how many blocks must stay available then."""

from __future__ import annotations

import bisect

from engine.block_manager import BlockManager
from engine.growth import Growth
from engine.scheduler_config import SchedulerConfig
from engine.scheduler_stats import Counters
from engine.sequence import Sequence, SequenceStatus
from engine.step_plan import StepPlan
from engine.swap import Swap
from engine.waiting import WaitingQueue


class Admission:
    """Takes sequences out of the waiting queue while budget, places and blocks suffice.

    Args:
        running: the sequences that hold a place in the batch, by rank; admitted ones are added.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        blocks: BlockManager,
        waiting: WaitingQueue,
        running: list[Sequence],
        counts: Counters,
        swap: Swap,
    ) -> None:
        self._config = config
        self._blocks = blocks
        self._waiting = waiting
        self._running = running
        self._counts = counts
        self._swap = swap

    def fill(self, plan: StepPlan) -> None:
        """Admit sequences in the queue's order, and plan their first tokens."""
        self._waiting.begin_step()
        growth: Growth | None = None
        while plan.budget and len(self._running) < self._config.max_num_seqs:
            sequence = self._waiting.peek()
            if sequence is None:
                break
            blocker = self._blocks.look_up(sequence)
            if blocker is not None:
                self._waiting.hold(blocker)
                continue
            if growth is None and self._config.reserve_growth:
                growth = Growth(self._running, self._config.block_size)
            if not self._blocks.admit(sequence, self._reserve(sequence, growth)):
                break
            self._waiting.pop()
            self._swap.swap_in(sequence)
            if growth is not None:
                growth.add(sequence)
            self._enter_batch(sequence)
            plan.add_chunk(sequence)

    def _reserve(self, sequence: Sequence, growth: Growth | None) -> int:
        """Blocks that must stay available when a sequence is admitted, for all to grow.

        At least one for each, so that nobody is preempted in the next step, and the watermark.
        A sequence that would run alone needs no such care: it fits into the pool.
        """
        if not self._running:
            return 0
        least = max(len(self._running) + 1, self._config.watermark_blocks)
        if growth is None:
            return least
        left = self._blocks.pool.num_available - self._blocks.blocks_for(sequence.num_tokens)
        return max(least, growth.reserve_for(sequence, left))

    def _enter_batch(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.RUNNING
        bisect.insort(self._running, sequence, key=lambda s: s.rank)
        if sequence.num_admissions == 0:
            sequence.cached_tokens = sequence.num_computed_tokens
            self._counts.prompt_tokens += len(sequence.prompt_token_ids)
            self._counts.cached_tokens += sequence.cached_tokens
        sequence.num_admissions += 1
