"""Who holds a place in the batch, told before each step, for whoever asks who was in it."""

from __future__ import annotations

from engine.messages import BatchChanged
from engine.sequence import Sequence


class BatchWatch:
    """Notices which requests entered the batch and which left it since the last look."""

    def __init__(self) -> None:
        self._seen: tuple[Sequence, ...] = ()

    def look(self, running: tuple[Sequence, ...]) -> BatchChanged | None:
        """Compare the batch with the one before; None where it is the same.

        Args:
            running: the sequences that hold a place in the batch.
        """
        if running == self._seen:
            return None
        before = dict.fromkeys(s.request_id for s in self._seen)
        now = dict.fromkeys(s.request_id for s in running)
        self._seen = running
        return BatchChanged(
            tuple(i for i in now if i not in before), tuple(i for i in before if i not in now)
        )
