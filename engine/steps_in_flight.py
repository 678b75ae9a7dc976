"""Steps that were planned and have not retired yet, and who ended while they were under way."""

from __future__ import annotations

import math
from collections import deque

from engine.batch import Batch, ScheduledSequence
from engine.errors import EngineError
from engine.sequence import Sequence

MOST = 2  # steps: one that the device computes, and one that is planned meanwhile


class StepsInFlight:
    """The planned steps, in their order; the device computes them one after the other.

    Attributes:
        ended: sequences that have ended, but that a step may still write blocks of.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[Batch, list[Sequence]]] = deque()
        self._ended: list[tuple[int, Sequence]] = []  # with the last step that may use each

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def ended(self) -> tuple[Sequence, ...]:
        return tuple(sequence for _, sequence in self._ended)

    def begin(self, batch: Batch, sequences: list[Sequence]) -> None:
        """A step was planned.

        Args:
            sequences: that of each entry of the batch.
        """
        self._steps.append((batch, sequences))

    def newest(self) -> dict[Sequence, ScheduledSequence]:
        """What the step that was planned last computes of each of its sequences."""
        batch, sequences = self._steps[-1]
        return dict(zip(sequences, batch.sequences, strict=True))

    def sequences_of(self, batch: Batch) -> list[Sequence]:
        """The sequences of the step that retires next.

        Raises:
            EngineError: the batch is not that step.
        """
        if not self._steps or self._steps[0][0] is not batch:
            raise EngineError(
                f"step {batch.step} is not the one to retire now; steps retire once, in the "
                "order in which they were scheduled"
            )
        return self._steps[0][1]

    def retire(self) -> None:
        """The oldest step is computed."""
        self._steps.popleft()

    def hold(self, sequence: Sequence) -> None:
        """A sequence has ended; keep its blocks until no step can write to them."""
        self._ended.append((self._steps[-1][0].step, sequence))

    def users(self) -> set[Sequence]:
        """Whole sequences of which some step computes tokens."""
        return {sequence.whole for _, sequences in self._steps for sequence in sequences}

    def take_landed(self) -> list[Sequence]:
        """The ended sequences that no step uses any more; each is given once."""
        oldest = self._steps[0][0].step if self._steps else math.inf
        landed = [sequence for last, sequence in self._ended if last < oldest]
        self._ended = [(last, sequence) for last, sequence in self._ended if last >= oldest]
        return landed
