"""What schedules make of times that have come.

Many look at the clock. Who moves `next_due_at` on from the value that he saw inserts what is due,
in the same transaction; for the others there is nothing left to do. That there is one row a time
of a schedule is a constraint besides, for clocks that are put back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from jobs.errors import StateConflict
from jobs.evaluation_tables import EVALUATION_IS_OPEN, OF_A_SCHEDULE, evaluations, schedules
from jobs.ids import new_id
from jobs.records.evaluations import Overlap, ScheduleRecord, Trigger
from jobs.store.evaluations import insert_evaluation
from jobs.store.schedules import find_schedule

MISSED = "missed"
OVERLAP = "overlap"


@dataclass(frozen=True, slots=True)
class Ticked:
    """What was inserted for the times of a schedule.

    Attributes:
        begun: ids of evaluations that anybody may drive now, with their times.
        skipped: those of which only is told why they are not run.
    """

    schedule: str
    begun: tuple[tuple[str, datetime], ...]
    skipped: tuple[tuple[str, datetime], ...]


def tick_schedule(
    connection: Connection,
    seen: ScheduleRecord,
    run: tuple[datetime, ...],
    missed: tuple[datetime, datetime] | None,
    next_due_at: datetime | None,
) -> Ticked | None:
    """Insert what is due and move the schedule on; None if it is not as it was seen any more."""
    moved = connection.execute(
        update(schedules)
        .where(schedules.c.id == seen.id, schedules.c.next_due_at == seen.next_due_at)
        .values(next_due_at=next_due_at)
    )
    if moved.rowcount == 0:
        return None
    schedule = find_schedule(connection, seen.name)
    begun: list[tuple[str, datetime]] = []
    skipped: list[tuple[str, datetime]] = []
    if missed is not None and (id := _insert_missed(connection, schedule, *missed)):
        skipped.append((id, missed[0]))
    for due_at in run:
        reason = None
        if schedule.overlap is Overlap.SKIP and (other := _open(connection, schedule)) is not None:
            reason = (OVERLAP, f"the evaluation {other.id} was still {other.state} at its time")
        if id := _insert(connection, schedule, due_at, reason):
            (skipped if reason else begun).append((id, due_at))
    return Ticked(schedule.name, tuple(begun), tuple(skipped))


def run_now(connection: Connection, name: str, evaluation_id: str) -> str:
    """Insert an evaluation that is no matter of time.

    Raises:
        ScheduleNotFound: there is no such schedule.
        StateConflict: another runs, and the schedule's must not overlap.
    """
    schedule = find_schedule(connection, name)
    # Those that ask at once are dealt with one after another.
    connection.execute(
        update(schedules).where(schedules.c.id == schedule.id).values(name=schedules.c.name)
    )
    other = _open(connection, schedule)
    if other is not None and other.id == evaluation_id:
        return evaluation_id
    if other is not None and schedule.overlap is Overlap.SKIP:
        raise StateConflict(
            f"the evaluation {other.id} of the schedule {name} is still {other.state}, and its "
            f"overlap is skip; wait for it with `pagemill eval wait {other.id}`"
        )
    insert_evaluation(
        connection,
        evaluation_id,
        name=schedule.name,
        spec=schedule.spec,
        trigger=Trigger.MANUAL,
        schedule_id=schedule.id,
        expected_hash=schedule.dataset_hash,
    )
    return evaluation_id


def _open(connection: Connection, schedule: ScheduleRecord) -> Any | None:
    """Id and state of the oldest evaluation of a schedule that has not ended.

    One of a schedule of this name that was removed since counts, too.
    """
    query = (
        select(evaluations.c.id, evaluations.c.state)
        .where(evaluations.c.name == schedule.name, OF_A_SCHEDULE, EVALUATION_IS_OPEN)
        .order_by(evaluations.c.created_at, evaluations.c.id)
        .limit(1)
    )
    return connection.execute(query).one_or_none()


def _insert(
    connection: Connection,
    schedule: ScheduleRecord,
    due_at: datetime,
    skipped: tuple[str, str] | None,
) -> str | None:
    """Insert one for a time; None if there was one before the clock was put back."""
    evaluation_id = new_id("eval")
    inserted = insert_evaluation(
        connection,
        evaluation_id,
        name=schedule.name,
        spec=schedule.spec,
        trigger=Trigger.CRON,
        schedule_id=schedule.id,
        due_at=due_at,
        expected_hash=schedule.dataset_hash,
        skipped=skipped,
    )
    return evaluation_id if inserted else None


def _insert_missed(
    connection: Connection, schedule: ScheduleRecord, first: datetime, last: datetime
) -> str | None:
    """Tell, in one row, of all the times that nobody was there for and that are not run."""
    message = "its time passed while neither `pagemill beat` nor a worker ran"
    if last > first:
        message += f", and so did all times until {last:%Y-%m-%d %H:%M} UTC that are not listed"
    message += f"; catch-up is {schedule.catch_up}"
    return _insert(connection, schedule, first, (MISSED, message))
