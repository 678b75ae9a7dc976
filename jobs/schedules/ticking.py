"""Looking at the clock: what is due becomes evaluations.

Beats and workers do it all the time, and so may commands. It is the database's clock that counts,
and any number may look at it at once: see `jobs.store.ticks`.
"""

from __future__ import annotations

import logging

from jobs.errors import UsageError
from jobs.schedules.cron import cron_of
from jobs.schedules.policies import plan
from jobs.store import Store
from jobs.store.ticks import Ticked

log = logging.getLogger("pagemill.schedules")

_CLOCK_STEP = 0.002  # seconds by which a clock that counts milliseconds may be behind


def tick(store: Store) -> int:
    """Insert the evaluations that are due; returns how many can be driven now.

    Raises:
        DatabaseError: the database cannot be reached, or stays locked.
        UsageError: a schedule cannot be read here; all others are dealt with.
    """
    now, due = store.due_schedules()
    begun = 0
    refused = None
    for schedule in due:
        try:
            cron = cron_of(schedule)
        except UsageError as error:  # its time zone is not known here
            refused = UsageError(f"the schedule {schedule.name} cannot be ticked: {error}")
            continue
        assert schedule.next_due_at is not None
        to_do = plan(cron, schedule.next_due_at, now, schedule.catch_up)
        ticked = store.tick_schedule(schedule, to_do.run, to_do.missed, to_do.next_due_at)
        if ticked is not None:
            begun += len(ticked.begun)
            _tell(ticked)
    if refused is not None:
        raise refused
    return begun


def seconds_to_next(store: Store, most: float) -> float:
    """How long to wait before the next look, so that it is made when the next time comes.

    Args:
        most: look after so many seconds in any case: schedules come and change meanwhile.
    """
    left = store.seconds_to_next_tick()
    return most if left is None else min(most, max(left, 0.0) + _CLOCK_STEP)


def _tell(ticked: Ticked) -> None:
    for evaluation_id, due_at in ticked.begun:
        log.info(
            "%s: the evaluation %s is due at %s", ticked.schedule, evaluation_id, due_at,
            extra={"event": "evaluation_due", "evaluation_id": evaluation_id},
        )  # fmt: skip
    for evaluation_id, due_at in ticked.skipped:
        log.warning(
            "%s: what was due at %s is not run; see the evaluation %s",
            ticked.schedule, due_at, evaluation_id,
            extra={"event": "evaluation_skipped", "evaluation_id": evaluation_id},
        )  # fmt: skip
