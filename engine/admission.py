"""Which waiting sequences enter the batch, and how many blocks must stay available then."""

from __future__ import annotations

import bisect

from engine.block_manager import BlockManager
from engine.growth import Growth
from engine.sample_families import SampleFamilies
from engine.scheduler_config import SchedulerConfig
from engine.scheduler_stats import Counters
from engine.sequence import Sequence, SequenceStatus
from engine.step_plan import StepPlan
from engine.swap import Swap
from engine.waiting import WaitingQueue


class Admission:
    """Takes sequences out of the waiting queue while budget, places and blocks suffice.

    Args:
        families: samples that wait for another one to compute their prompt.
        running: the sequences that hold a place in the batch, by rank; admitted ones are added.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        families: SampleFamilies,
        blocks: BlockManager,
        waiting: WaitingQueue,
        running: list[Sequence],
        counts: Counters,
        swap: Swap,
    ) -> None:
        self._config = config
        self._families = families
        self._blocks = blocks
        self._waiting = waiting
        self._running = running
        self._counts = counts
        self._swap = swap
        # All rows that run need a token of the next step.
        self._most_places = min(config.max_num_seqs, config.max_num_batched_tokens)
        # What those who run may need of the next step, in rows and in new blocks.
        self._places = self._next_blocks = 0

    def fill(self, plan: StepPlan) -> None:
        """Admit sequences in the queue's order, and plan their first tokens."""
        if not len(self._waiting) and not self._families.num_followers:
            return
        block_size, caching = self._config.block_size, self._config.enable_prefix_caching
        self._places = sum([sequence.places for sequence in self._running])
        if self._places >= self._most_places:
            return
        self._next_blocks = sum([sequence.next_blocks(block_size) for sequence in self._running])
        self._waiting.begin_step()
        self._fork_samples(plan)
        growth: Growth | None = None
        while plan.budget:
            sequence = self._waiting.peek()
            if sequence is None or not self._has_place_for(sequence):
                break
            blocker = self._blocks.look_up(sequence)
            if blocker is not None:
                self._waiting.hold(blocker)
                continue
            if growth is None and self._config.reserve_growth:
                growth = Growth(self._running, block_size)
            wanted = self._blocks.blocks_for(sequence.num_tokens)
            alone = caching or sequence.swapped is not None
            donor = None if alone else self._families.donor(sequence)
            if donor is not None and self._swap.brings(donor):
                donor = None
            if not self._blocks.admit(sequence, self._reserve(sequence, growth, wanted), donor):
                break
            self._waiting.pop()
            self._swap.swap_in(sequence)
            if growth is not None:
                growth.add(sequence)
            self._enter_batch(sequence)
            plan.add_chunk(sequence)
            if self._families.leads(sequence):
                self._fork_samples(plan)
                growth = None  # more of them run by now

    def _fork_samples(self, plan: StepPlan) -> None:
        """Admit samples with the step that completes their prompt, as many as there is room for.

        They need no tokens of its budget, but take no place from a sequence of higher priority.
        """
        if not self._families.num_followers:
            return
        growth = (
            Growth(self._running, self._config.block_size) if self._config.reserve_growth else None
        )
        leaders = [
            sequence
            for sequence, planned in zip(plan.sequences, plan.planned, strict=True)
            if planned.samples and not sequence.output_token_ids and self._families.leads(sequence)
        ]
        for leader in leaders:
            first = self._waiting.peek()
            if first is not None and first.request.priority > leader.request.priority:
                continue
            index = plan.sequences.index(leader)
            for sequence in self._families.followers_of(leader):
                reserve = self._reserve(sequence, growth, 0)
                if not self._has_place_for(sequence) or self._blocks.pool.num_available < reserve:
                    break
                index += 1
                self._families.forked(sequence)
                self._blocks.await_fork(leader, sequence)
                if growth is not None:
                    growth.add(sequence)
                self._enter_batch(sequence)
                plan.add_fork(index, sequence)

    def _has_place_for(self, sequence: Sequence) -> bool:
        """Whether one more may run."""
        return self._places + sequence.places <= self._most_places

    def _reserve(self, sequence: Sequence, growth: Growth | None, wanted: int) -> int:
        """Blocks that must stay available when a sequence is admitted, for all to grow.

        At least what each may need next, so that nobody is preempted in the next step, and the
        watermark. A sequence that would run alone needs no such care: it fits into the pool.

        Args:
            wanted: blocks that it is given at once.
        """
        if not self._running:
            return 0
        next_step = self._next_blocks + sequence.next_blocks(self._config.block_size)
        least = max(next_step, self._config.watermark_blocks)
        if growth is None:
            return least
        left = self._blocks.pool.num_available - wanted
        return max(least, growth.reserve_for(sequence, left))

    def _enter_batch(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.RUNNING
        bisect.insort(self._running, sequence, key=lambda s: s.rank)
        self._places += sequence.places
        self._next_blocks += sequence.next_blocks(self._config.block_size)
        if sequence.num_admissions == 0:
            sequence.cached_tokens = sequence.num_computed_tokens
            self._counts.prompt_tokens += len(sequence.prompt_token_ids)
            self._counts.cached_tokens += sequence.cached_tokens
        sequence.num_admissions += 1
