"""How fast a count grows."""

from __future__ import annotations

from collections import deque

# Samples come about twice a second while something is computed. A window that ends at a sample
# younger than this is exact; without one, nothing was computed since.
FRESH_SECONDS = 2.0


class Throughput:
    """The growth of a count per second, over a sliding window.

    Not thread-safe.

    Args:
        window: its length in seconds.
    """

    def __init__(self, window: float = 10.0) -> None:
        self._window = window
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, count: float, at: float) -> None:
        """Note how high the count stood at a time; times must not decrease."""
        self._samples.append((at, count))
        # One sample that is older than the window tells how high the count stood at its start.
        while len(self._samples) > 2 and self._samples[1][0] <= at - self._window:
            self._samples.popleft()

    def per_second(self, now: float) -> float:
        """The mean over the window that ends now; over what there is, if that is less."""
        if len(self._samples) < 2:
            return 0.0
        last_at, last = self._samples[-1]
        end = last_at if now - last_at < FRESH_SECONDS else now
        start = max(end - self._window, self._samples[0][0])
        if start >= last_at:
            return 0.0
        return max(0.0, last - self._count_at(start)) / (end - start)

    def _count_at(self, start: float) -> float:
        earlier = self._samples[0]
        for later in self._samples:
            if later[0] > start:
                break
            earlier = later
        share = (start - earlier[0]) / (later[0] - earlier[0])
        return earlier[1] + share * (later[1] - earlier[1])
