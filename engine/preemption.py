"""Who makes room when the KV pool is full."""

from __future__ import annotations

from engine.block_manager import BlockManager
from engine.scheduler_stats import Counters
from engine.sequence import Sequence, SequenceStatus
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
    ) -> None:
        self._blocks = blocks
        self._waiting = waiting
        self._running = running
        self._counts = counts

    def make_room(self, sequence: Sequence) -> bool:
        """Give a sequence one more block, if need be by preempting those ranked last.

        False if the sequence itself was ranked last and has been preempted.
        """
        while not self._blocks.grow(sequence):
            victim = self._running.pop()
            self._blocks.release(victim)
            victim.status = SequenceStatus.WAITING
            self._waiting.push(victim)
            self._counts.preemptions += 1
            if victim is sequence:
                return False
        return True
