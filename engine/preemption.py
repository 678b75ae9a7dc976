"""Who makes room when the KV pool is full.

The victim is the sequence of the lowest priority; of those, one that came last; of those that
came together, the one that loses the fewest computed tokens; of equal ones, that of the latest
arrival. Requests came together if no step was planned between them: which of the rows of a
chunk is the last one means nothing, and to compute fewer tokens again does.

This comes to an end whoever is chosen. A victim keeps the tokens that it was given. Only
sequences that are about to get a token preempt others; if all of those are victims themselves,
the ones that stay are in their prompts, and preempt nobody before they have got a token. A
sequence that is alone always fits (see `SchedulerConfig.longest_answer`).
"""

from __future__ import annotations

from engine.block_manager import BlockManager
from engine.scheduler_stats import Counters
from engine.sequence import Sequence, SequenceStatus
from engine.swap import Swap
from engine.waiting import WaitingQueue


class Preemption:
    """Takes blocks from sequences that run, so that others can grow.

    Args:
        running: the sequences that hold a place in the batch, by rank; victims leave it.
    """

    def __init__(
        self,
        blocks: BlockManager,
        waiting: WaitingQueue,
        running: list[Sequence],
        counts: Counters,
        swap: Swap,
    ) -> None:
        self._blocks = blocks
        self._waiting = waiting
        self._running = running
        self._counts = counts
        self._swap = swap

    def make_room(self) -> None:
        """Give each sequence whose blocks are full one for its next token, by rank."""
        lacks_room, grow = self._blocks.lacks_room, self._blocks.grow
        for holder in [h for s in self._running for h in s.beams or (s,) if lacks_room(h)]:
            runs = holder.whole
            while runs.status is SequenceStatus.RUNNING and lacks_room(holder):
                if not grow(holder):
                    self._preempt(self._choose_victim())

    def _choose_victim(self) -> Sequence:
        last = self._running[-1]
        group = []
        for sequence in reversed(self._running):
            if (sequence.rank[0], sequence.wave) != (last.rank[0], last.wave):
                break
            group.append(sequence)
        return min(group, key=self._loss)

    def _loss(self, sequence: Sequence) -> tuple[bool, int]:
        """Whether a victim gives nothing back, and how many computed tokens are only its own."""
        shared = self._blocks.num_shared(sequence)
        own = sequence.num_computed_tokens - shared * self._blocks.block_size
        return shared == len(sequence.block_table), max(0, own)

    def _preempt(self, victim: Sequence) -> None:
        # Beams are computed again, from what they have in common.
        if not victim.beams and not self._blocks.awaits_copy(victim):
            self._swap.swap_out(victim)
        self._blocks.release(victim)
        self._running.remove(victim)
        victim.status = SequenceStatus.WAITING
        self._waiting.push(victim)
        self._counts.preemptions += 1
