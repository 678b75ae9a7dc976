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
    _mend(store)
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


def _mend(store: Store) -> None:
    """Bring times back that lie further ahead than the first time after now.

    A clock that was far ahead for a moment, and one that was put back, leave schedules that would
    run nothing until it is there again. A time that has run does not run again: see `store.ticks`.
    """
    now, ahead = store.schedules_ahead()
    for schedule in ahead:
        assert schedule.next_due_at is not None
        try:
            next_due_at = cron_of(schedule).next(now)
        except UsageError:  # it is refused when it is due
            continue
        if next_due_at is None or next_due_at >= schedule.next_due_at:
            continue
        if store.tick_schedule(schedule, (), None, next_due_at) is not None:
            log.warning(
                "%s: its next time was %s, and is %s: the database's clock was put back",
                schedule.name, schedule.next_due_at, next_due_at,
                extra={"event": "schedule_mended", "schedule": schedule.name},
            )  # fmt: skip


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
