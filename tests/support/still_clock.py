"""A clock of the commands that wait, on which only their own waits take time."""

from __future__ import annotations

import pytest

from jobs.cli import watching, why_it_waits


class StillClock:
    """What those modules use of `time`. However slow the machine, a wait has as many looks."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def stand_still(patch: pytest.MonkeyPatch) -> None:
    """Let a wait with a timeout end after a certain number of looks, and at once."""
    clock = StillClock()
    for module in (watching, why_it_waits):
        patch.setattr(module, "time", clock)
