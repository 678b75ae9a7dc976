"""What becomes of the times of a schedule that have come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.errors import UsageError
from jobs.records.evaluations import CatchUp, Overlap
from jobs.schedules.cron import Cron

GRACE = timedelta(minutes=10)  # a time that passed so long ago at most has not been missed
MOST = 100  # times that are caught up at once


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with the times that have come.

    Attributes:
        run: times that are run, in order.
        missed: the first and the last of those that are not; None if there are none.
        next_due_at: the first time that has not come yet; None if none will.
    """

    run: tuple[datetime, ...]
    missed: tuple[datetime, datetime] | None
    next_due_at: datetime | None


def plan(cron: Cron, due_at: datetime, now: datetime, catch_up: CatchUp) -> Plan:
    """What to do at a moment.

    Args:
        due_at: the first time that is not dealt with; it has come.
    """
    most = MOST if catch_up is CatchUp.ALL else 1
    # One more, to know whether any is left out, and which is the last of those. The time that was
    # announced is always one, whatever the zone's rules have become meanwhile.
    times = cron.newest(due_at, now, most + 1)
    if len(times) <= most:
        times.insert(0, due_at)
    run, rest = times[-most:], times[:-most]
    if catch_up is CatchUp.SKIP and run[-1] < now - GRACE:
        run, rest = [], times
    missed = (due_at, rest[-1]) if rest else None
    return Plan(tuple(run), missed, cron.next(now))


def overlap_for(given: Overlap | None, catch_up: CatchUp) -> Overlap:
    """How a schedule overlaps, where its owner may have said nothing of it.

    Raises:
        UsageError: it does not go with how missed times are caught up.
    """
    if catch_up is not CatchUp.ALL:
        return given or Overlap.SKIP
    if given is Overlap.SKIP:
        raise UsageError(
            "catch-up all and overlap skip do not go together: of the times that were missed, all "
            "but the first would be skipped; take overlap wait, or allow"
        )
    return given or Overlap.WAIT
