"""Schedules to put into a store, and a clock of the database that a test turns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from sqlalchemy import Row, literal, select, update

from jobs.database import Database
from jobs.evaluation_tables import evaluations, schedules
from jobs.ids import new_id
from jobs.records.evaluations import CatchUp, EvaluationState, Overlap, ScheduleRecord
from jobs.schedules.cron import parse_cron
from jobs.sqltypes import UtcDateTime, database_now
from jobs.store import Store
from jobs.store.schedules import NewSchedule

SPEC = {
    "version": 1,
    "inputs": ["/evals/*.jsonl"],
    "model": "m",
    "target": "target",
    "scorers": [{"name": "exact", "scorer": "exact", "options": {}}],
}
# The modules of the store that look at the clock for schedules.
_LOOKING = ("jobs.store.schedules", "jobs.store.evaluations", "jobs.store.evaluation_steps")


class Clock:
    """What the database's clock shows while `held`."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def to(self, now: datetime) -> None:
        self.now = now

    def forward(self, **span: float) -> None:
        self.now += timedelta(**span)

    @contextlib.contextmanager
    def held(self) -> Iterator[Clock]:
        with contextlib.ExitStack() as stack:
            for module in _LOOKING:
                stack.enter_context(mock.patch(f"{module}.database_now", self._reading))
            yield self

    def _reading(self, plus_seconds: float = 0.0) -> Any:
        return literal(self.now + timedelta(seconds=plus_seconds), UtcDateTime)


def new_schedule(
    name: str = "nightly",
    cron: str = "0 2 * * *",
    timezone: str = "UTC",
    *,
    catch_up: CatchUp = CatchUp.LATEST,
    overlap: Overlap = Overlap.SKIP,
    paused: bool = False,
) -> NewSchedule:
    times = parse_cron(cron, timezone)
    return NewSchedule(
        id=new_id("sched"),
        name=name,
        cron=cron,
        timezone=timezone,
        spec=SPEC,
        dataset_hash="a" * 64,
        catch_up=catch_up,
        overlap=overlap,
        next_time=times.next,
        paused=paused,
    )


def evaluation_rows(database: Database, **of: Any) -> list[Row[Any]]:
    """The evaluations in the order in which they were due."""
    matching = [evaluations.c[name] == value for name, value in of.items()]
    query = select(evaluations).where(*matching).order_by(evaluations.c.due_at, evaluations.c.id)
    with database.read() as connection:
        return list(connection.execute(query))


def set_state(database: Database, evaluation_id: str, state: EvaluationState) -> None:
    """Drive an evaluation by hand."""
    finished_at = database_now() if state.terminal else None
    with database.begin() as connection:
        connection.execute(
            update(evaluations)
            .where(evaluations.c.id == evaluation_id)
            .values(state=state, finished_at=finished_at)
        )


def make_due(database: Database, schedule: ScheduleRecord, seconds: float) -> None:
    """Let the next time of a schedule have come so long ago."""
    with database.begin() as connection:
        connection.execute(
            update(schedules)
            .where(schedules.c.id == schedule.id)
            .values(next_due_at=database_now(-seconds))
        )


def due_times(store: Store, name: str = "nightly") -> datetime | None:
    return store.schedule(name).next_due_at
