"""Looking at the clock again and again."""

from __future__ import annotations

from collections.abc import Callable

from jobs.periodic import Periodic
from jobs.schedules.ticking import seconds_to_next, tick
from jobs.store import Store


class Ticker(Periodic):
    """Ticks whenever the time of a schedule comes.

    Args:
        seconds: how often it looks at least, for schedules that were added or changed meanwhile.
        begun: called when there are evaluations that can be driven now.
    """

    def __init__(self, store: Store, seconds: float, begun: Callable[[], None]) -> None:
        super().__init__("schedules", seconds, self.look)
        self._store = store
        self._most = seconds
        self._begun = begun

    def look(self) -> None:
        """One round."""
        self.seconds = self._most  # where this one fails, the next is not at once
        if tick(self._store):
            self._begun()
        self.seconds = seconds_to_next(self._store, self._most)
