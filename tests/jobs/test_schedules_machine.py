"""Schedules under any order of events, with clocks that jump, against a simple model."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from jobs.database import Database
from jobs.errors import ScheduleNotFound, StateConflict
from jobs.records.evaluations import CatchUp, EvaluationState, Overlap, ScheduleRecord
from jobs.schedules.cron import cron_of
from jobs.schedules.policies import plan
from jobs.schedules.ticking import tick
from jobs.store import Store
from tests.support.schedule_model import ModelSchedule, ModelSeries, Plan
from tests.support.schedules import Clock, evaluation_rows, new_schedule, set_state
from tests.support.wall_clock import utc

NAMES = st.sampled_from(["a", "b"])
CRONS = st.sampled_from(["0 * * * *", "*/20 * * * *", "7,30 * * * *", "30 */2 * * *"])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"])
POLICIES = st.tuples(st.sampled_from(CatchUp), st.sampled_from(Overlap))
START = utc(2026, 3, 28, 22, 10)  # three hours before Berlin puts its clocks forward
# A little, past a few times, and back over one that was run.
SPANS = st.sampled_from([1, 5, 20, 61, 200, 400, -1, -30, -90])


class Schedules(RuleBasedStateMachine):
    """The store under test beside the model."""

    looks = Bundle("looks")  # what tickers saw, and have not acted upon yet

    open_database: Callable[[], Database]

    def __init__(self) -> None:
        super().__init__()
        self.database = self.open_database()
        self.store = Store(self.database)
        self.clock = Clock(START)
        self.held = self.clock.held()
        self.held.__enter__()
        self.models: dict[str, ModelSchedule] = {}  # by id, removed ones too
        self.names: dict[str, str] = {}
        self.series: dict[str, ModelSeries] = defaultdict(ModelSeries)

    def teardown(self) -> None:
        self.held.__exit__(None, None, None)
        self.database.close()

    # ---- people

    @initialize(policies=POLICIES)
    def begin_with_one(self, policies: tuple[CatchUp, Overlap]) -> None:
        self.add("a", "*/20 * * * *", "UTC", policies, replace=False)

    @rule(name=NAMES, cron=CRONS, zone=ZONES, policies=POLICIES, replace=st.booleans())
    def add(
        self, name: str, cron: str, zone: str, policies: tuple[CatchUp, Overlap], replace: bool
    ) -> None:
        catch_up, overlap = policies
        new = new_schedule(name, cron, zone, catch_up=catch_up, overlap=overlap)
        if name in self.names and not replace:
            with pytest.raises(StateConflict):
                self.store.add_schedule(new)
            return
        made = self.store.add_schedule(new, replace=replace)
        before = self.models.get(made.id)
        model = ModelSchedule(cron, zone, catch_up, overlap, self.series[name])
        if before is not None:
            model.rows = before.rows
        model.start(self.clock.now)
        self.names[name] = made.id
        self.models[made.id] = model

    @rule(name=NAMES)
    def pause(self, name: str) -> None:
        if name in self.names:
            self.store.pause_schedule(name)
            self.models[self.names[name]].next = None

    @rule(name=NAMES)
    def resume(self, name: str) -> None:
        if name in self.names:
            self.store.resume_schedule(name, lambda schedule: cron_of(schedule).next)
            model = self.models[self.names[name]]
            if model.next is None:
                model.start(self.clock.now)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        assert self.store.remove_schedule(name) == (name in self.names)
        if name in self.names:
            self.models[self.names.pop(name)].next = None

    @rule(name=NAMES)
    def run_now(self, name: str) -> None:
        if name not in self.names:
            with pytest.raises(ScheduleNotFound):
                self.store.run_now(name)
            return
        model = self.models[self.names[name]]
        if model.overlap is Overlap.SKIP and model.series.open:
            with pytest.raises(StateConflict):
                self.store.run_now(name)
            return
        self.store.run_now(name)
        model.series.open += 1

    # ---- time

    @rule(minutes=SPANS)
    def time_passes(self, minutes: int) -> None:
        self.clock.forward(minutes=minutes)

    @rule(name=NAMES)
    def all_come_to_their_end(self, name: str) -> None:
        for row in evaluation_rows(self.database, name=name):
            if row.finished_at is None:
                set_state(self.database, row.id, EvaluationState.COMPLETED)
        self.series[name].open = 0

    # ---- tickers

    @rule()
    def tick(self) -> None:
        tick(self.store)
        for model in self.models.values():
            model.mend(self.clock.now)
            planned = model.look(self.clock.now)
            if planned is not None:
                model.tick(planned)
        left = self.store.seconds_to_next_tick()
        assert left is None or left > 0

    @rule(target=looks, minutes=SPANS)
    def look(self, minutes: int) -> Any:
        """A slow ticker: others tick, and people change schedules, before it acts."""
        self.clock.forward(minutes=minutes)
        now, due = self.store.due_schedules()
        assert now == self.clock.now
        return multiple(*((seen, now, self.models[seen.id].look(now)) for seen in due))

    @rule(look=consumes(looks))
    def act(self, look: tuple[ScheduleRecord, Any, Plan]) -> None:
        seen, now, planned = look
        assert seen.next_due_at is not None
        mine = plan(cron_of(seen), seen.next_due_at, now, seen.catch_up)
        self.store.tick_schedule(seen, mine.run, mine.missed, mine.next_due_at)
        model = self.models[seen.id]
        model.tick(planned)

    # ---- what always holds

    @invariant()
    def each_time_became_what_the_model_says(self) -> None:
        found: dict[str, dict[Any, str]] = {schedule_id: {} for schedule_id in self.models}
        for row in evaluation_rows(self.database):
            if row.due_at is not None:
                assert row.due_at not in found[row.schedule_id]
                found[row.schedule_id][row.due_at] = row.error_code or "pending"
        assert found == {schedule_id: model.rows for schedule_id, model in self.models.items()}

    @invariant()
    def the_next_time_is_that_of_the_model(self) -> None:
        found = {schedule.id: schedule.next_due_at for schedule in self.store.schedules()}
        assert found == {i: self.models[i].next for i in self.names.values()}

    @invariant()
    def only_so_many_are_open(self) -> None:
        for name, series in self.series.items():
            rows = evaluation_rows(self.database, name=name)
            assert sum(row.finished_at is None for row in rows) == series.open


def test_any_order_of_events(migrated_sqlite: Path, tmp_path: Path) -> None:
    def open_database() -> Database:
        path = tmp_path / "jobs.db"
        for leftover in tmp_path.glob("jobs.db*"):
            leftover.unlink()
        shutil.copy(migrated_sqlite, path)
        return Database(f"sqlite:///{path}")

    machine = type(
        "SchedulesOnSqlite", (Schedules,), {"open_database": staticmethod(open_database)}
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_clock_of_the_model_is_that_of_the_store() -> None:
    """Else all of the above would hold for want of anything that happens."""
    model = ModelSchedule("0 * * * *", "UTC", CatchUp.LATEST, Overlap.SKIP)
    model.start(START)
    planned = model.look(START + timedelta(hours=3))
    assert planned == Plan(
        utc(2026, 3, 28, 23), (utc(2026, 3, 29, 1),), utc(2026, 3, 28, 23), utc(2026, 3, 29, 2)
    )
