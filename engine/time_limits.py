"""Requests that may take only so long."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

from engine.batch import Batch
from engine.request import Request

MIN_TO_SWEEP = 100  # entries of ended requests that may stay, however few others there are


class TimeLimits:
    """Tells which requests are past their time.

    A request's time begins when a step first computes something of it, however long it waited
    before, and goes on while it waits again because others needed its blocks.

    Args:
        clock: in seconds, and monotonic: a clock that is set changes nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, float] = {}  # seconds of each that was not begun
        self._ends: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []  # heap of `_ends`, and of some that are gone

    def add(self, request: Request) -> None:
        if request.timeout is not None:
            self._waiting[request.request_id] = request.timeout

    def begin(self, batch: Batch) -> None:
        """The batch is computed next."""
        if not self._waiting:
            return
        now = self._clock()
        for sequence in batch.sequences:
            seconds = self._waiting.pop(sequence.request_id, None)
            if seconds is not None:
                self._ends[sequence.request_id] = now + seconds
                heapq.heappush(self._order, (now + seconds, sequence.request_id))

    def forget(self, request_id: str) -> None:
        """The request has ended; unknown ids are passed over."""
        self._waiting.pop(request_id, None)
        self._ends.pop(request_id, None)
        # Of requests that end in time, what is in the heap comes up much later.
        if len(self._order) > 2 * len(self._ends) + MIN_TO_SWEEP:
            self._order = [entry for entry in self._order if self._ends.get(entry[1]) == entry[0]]
            heapq.heapify(self._order)

    def overdue(self) -> list[str]:
        """The requests whose time is over; each is named once."""
        found: list[str] = []
        while self._order:
            end, request_id = self._order[0]
            if self._ends.get(request_id) == end:
                if end > self._clock():
                    break
                found.append(request_id)
                del self._ends[request_id]
            heapq.heappop(self._order)
        return found
