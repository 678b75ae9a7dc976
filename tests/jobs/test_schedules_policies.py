"""What is done with times that have come."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from jobs.errors import UsageError
from jobs.records.evaluations import CatchUp, Overlap
from jobs.schedules.cron import parse_cron
from jobs.schedules.policies import GRACE, MOST, Plan, overlap_for, plan
from tests.support.wall_clock import utc

pytestmark = pytest.mark.quick

NIGHTLY = parse_cron("0 2 * * *", "UTC")
DUE = utc(2026, 3, 1, 2)
DAY = timedelta(days=1)


def planned(now: datetime, catch_up: CatchUp) -> Plan:
    return plan(NIGHTLY, DUE, now, catch_up)


@pytest.mark.parametrize("catch_up", CatchUp)
def test_on_time(catch_up: CatchUp) -> None:
    assert planned(DUE, catch_up) == Plan((DUE,), None, DUE + DAY)
    assert planned(DUE + GRACE, catch_up) == Plan((DUE,), None, DUE + DAY)


def test_nobody_was_there_for_three_nights() -> None:
    now = DUE + 2.5 * DAY
    three = (DUE, DUE + DAY, DUE + 2 * DAY)
    assert planned(now, CatchUp.SKIP) == Plan((), (three[0], three[2]), DUE + 3 * DAY)
    assert planned(now, CatchUp.LATEST) == Plan(three[2:], three[:2], DUE + 3 * DAY)
    assert planned(now, CatchUp.ALL) == Plan(three, None, DUE + 3 * DAY)


def test_one_that_is_just_over_is_no_missed_one() -> None:
    now = DUE + DAY + GRACE
    assert planned(now, CatchUp.SKIP) == Plan((DUE + DAY,), (DUE, DUE), DUE + 2 * DAY)
    late = planned(now + timedelta(seconds=1), CatchUp.SKIP)
    assert late == Plan((), (DUE, DUE + DAY), DUE + 2 * DAY)


@pytest.mark.parametrize("more", [0, 1, 500])
def test_of_very_many_the_last_hundred_are_run(more: int) -> None:
    now = DUE + (MOST - 1 + more) * DAY
    found = planned(now, CatchUp.ALL)
    assert found.run == tuple(now - i * DAY for i in reversed(range(MOST)))
    assert found.missed == ((DUE, DUE + (more - 1) * DAY) if more else None)


def test_the_time_that_was_announced_counts_whatever_the_rules_are_by_now() -> None:
    announced = DUE + timedelta(minutes=30)
    found = plan(NIGHTLY, announced, DUE + timedelta(hours=1), CatchUp.LATEST)
    assert found == Plan((announced,), None, DUE + DAY)


def test_the_last_time_of_all() -> None:
    class Ending:
        def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
            return []

        def next(self, moment: datetime) -> None:
            return None

    ending: object = Ending()
    assert plan(ending, DUE, DUE, CatchUp.LATEST) == Plan((DUE,), None, None)  # type: ignore[arg-type]


def test_what_overlaps_where_nothing_is_said() -> None:
    assert overlap_for(None, CatchUp.LATEST) is Overlap.SKIP
    assert overlap_for(None, CatchUp.ALL) is Overlap.WAIT
    assert overlap_for(Overlap.ALLOW, CatchUp.ALL) is Overlap.ALLOW
    with pytest.raises(UsageError, match="take overlap wait, or allow"):
        overlap_for(Overlap.SKIP, CatchUp.ALL)
