"""Schedules: what is due is at `next_due_at`, by the database's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from jobs.errors import ScheduleNotFound, StateConflict
from jobs.evaluation_tables import schedules
from jobs.records.evaluations import CatchUp, Overlap, ScheduleRecord
from jobs.sqltypes import database_now
from jobs.store.rows import inserted_unless_there

NextTime = Callable[[datetime], datetime | None]


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule that is not in SQL yet.

    Attributes:
        next_time: gives the first time after a moment.
    """

    id: str
    name: str
    cron: str
    timezone: str
    spec: Mapping[str, Any]
    dataset_hash: str | None
    catch_up: CatchUp
    overlap: Overlap
    next_time: NextTime
    paused: bool = False


def insert_schedule(connection: Connection, new: NewSchedule, replace: bool) -> ScheduleRecord:
    """Insert it, or put it in the place of the one of its name.

    Raises:
        StateConflict: there is one of its name, and it is not to be replaced.
    """
    now = _now(connection)
    values = {
        "cron": new.cron,
        "timezone": new.timezone,
        "spec": dict(new.spec),
        "dataset_hash": new.dataset_hash,
        "catch_up": new.catch_up,
        "overlap": new.overlap,
        "paused_at": now if new.paused else None,
        "next_due_at": None if new.paused else new.next_time(now),
    }
    row = {"id": new.id, "name": new.name, "created_at": now, **values}
    inserted = inserted_unless_there(connection, schedules, row)
    there = find_schedule(connection, new.name)
    if inserted or there.id == new.id:  # inserted by an attempt whose answer was lost
        return there
    if not replace:
        raise StateConflict(
            f"there is a schedule {new.name} already; see `pagemill schedule show {new.name}`, "
            "and give --replace to put another in its place"
        )
    connection.execute(update(schedules).where(schedules.c.id == there.id).values(**values))
    return find_schedule(connection, new.name)


def find_schedule(connection: Connection, name: str) -> ScheduleRecord:
    row = connection.execute(select(schedules).where(schedules.c.name == name)).one_or_none()
    if row is None:
        raise ScheduleNotFound(f"there is no schedule {name}; see `pagemill schedule list`")
    return _record(row)


def list_schedules(connection: Connection) -> list[ScheduleRecord]:
    return [
        _record(row) for row in connection.execute(select(schedules).order_by(schedules.c.name))
    ]


def pause_schedule(connection: Connection, name: str) -> ScheduleRecord:
    connection.execute(
        update(schedules)
        .where(schedules.c.name == name, schedules.c.paused_at.is_(None))
        .values(paused_at=database_now(), next_due_at=None)
    )
    return find_schedule(connection, name)


def resume_schedule(
    connection: Connection, name: str, next_time_of: Callable[[ScheduleRecord], NextTime]
) -> ScheduleRecord:
    schedule = find_schedule(connection, name)
    if schedule.paused_at is None:
        return schedule
    connection.execute(
        update(schedules)
        .where(schedules.c.id == schedule.id, schedules.c.paused_at == schedule.paused_at)
        .values(paused_at=None, next_due_at=next_time_of(schedule)(_now(connection)))
    )
    return find_schedule(connection, name)


def remove_schedule(connection: Connection, name: str) -> bool:
    return connection.execute(delete(schedules).where(schedules.c.name == name)).rowcount == 1


def due_schedules(connection: Connection) -> tuple[datetime, list[ScheduleRecord]]:
    """The database's time, and the schedules of which a time has come by it."""
    query = (
        select(schedules, database_now().label("now"))
        .where(schedules.c.next_due_at <= database_now())
        .order_by(schedules.c.next_due_at, schedules.c.id)
    )
    rows = connection.execute(query).all()
    # Of each statement, as its times may be later than those of the first.
    return (rows[0].now if rows else _now(connection)), [_record(row) for row in rows]


def schedules_ahead(connection: Connection) -> tuple[datetime, list[ScheduleRecord]]:
    """The database's time, and the schedules whose next time comes after it."""
    query = select(schedules, database_now().label("now")).where(
        schedules.c.next_due_at > database_now()
    )
    rows = connection.execute(query).all()
    return (rows[0].now if rows else _now(connection)), [_record(row) for row in rows]


def seconds_to_next(connection: Connection) -> float | None:
    """How long until the next time of any schedule; negative if it has come; None without one."""
    first = (
        select(schedules.c.next_due_at)
        .where(schedules.c.next_due_at.is_not(None))
        .order_by(schedules.c.next_due_at)
        .limit(1)
    )
    due_at = connection.scalar(first)
    return None if due_at is None else (due_at - _now(connection)).total_seconds()


def _now(connection: Connection) -> datetime:
    return connection.execute(select(database_now())).scalar_one()


def _record(row: Row[Any]) -> ScheduleRecord:
    return ScheduleRecord(
        id=row.id,
        name=row.name,
        cron=row.cron,
        timezone=row.timezone,
        spec=row.spec,
        dataset_hash=row.dataset_hash,
        catch_up=CatchUp(row.catch_up),
        overlap=Overlap(row.overlap),
        created_at=row.created_at,
        paused_at=row.paused_at,
        next_due_at=row.next_due_at,
    )
