"""How long the engine's steps take, as a histogram."""

from __future__ import annotations

from bisect import bisect_left

from engine.messages import STEP_BUCKETS


class StepTimes:
    """Counts steps by their duration since the start.

    Attributes:
        seconds: all of them together.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._counts = [0] * (len(STEP_BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self._counts[bisect_left(STEP_BUCKETS, seconds)] += 1

    @property
    def buckets(self) -> tuple[int, ...]:
        """As in `EngineStats.step_buckets`."""
        return tuple(self._counts)
