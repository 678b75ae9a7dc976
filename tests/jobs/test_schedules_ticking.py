"""Times that have come become evaluations, each once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from jobs.errors import DatabaseUnavailable, ScheduleNotFound, StateConflict, UsageError
from jobs.evaluation_tables import schedules
from jobs.records.evaluations import CatchUp, EvaluationState, Overlap, ScheduleRecord, Trigger
from jobs.schedules.cron import cron_of, parse_cron
from jobs.schedules.ticker import Ticker
from jobs.schedules.ticking import seconds_to_next, tick
from jobs.store import Store
from jobs.store.schedules import NextTime
from tests.support.evaluations import add_evaluation
from tests.support.job_store import StoreUnderTest
from tests.support.schedules import (
    SPEC,
    Clock,
    due_times,
    evaluation_rows,
    new_schedule,
    set_state,
)
from tests.support.wall_clock import utc

pytestmark = pytest.mark.quick

NOON = utc(2026, 3, 1, 12)
TWO = utc(2026, 3, 2, 2)
DAY = timedelta(days=1)


@pytest.fixture
def clock() -> Iterator[Clock]:
    with Clock(NOON).held() as clock:
        yield clock


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def next_time_of(schedule: ScheduleRecord) -> NextTime:
    return cron_of(schedule).next


# ---- a schedule comes, changes and goes


def test_a_new_schedule(store: Store, clock: Clock) -> None:
    new = new_schedule(timezone="Europe/Berlin")
    made = store.add_schedule(new)
    assert made == ScheduleRecord(
        id=new.id,
        name="nightly",
        cron="0 2 * * *",
        timezone="Europe/Berlin",
        spec=SPEC,
        dataset_hash="a" * 64,
        catch_up=CatchUp.LATEST,
        overlap=Overlap.SKIP,
        created_at=NOON,
        paused_at=None,
        next_due_at=utc(2026, 3, 2, 1),
    )
    assert (store.schedule("nightly"), store.schedules()) == (made, [made])


def test_an_insert_whose_answer_was_lost_is_made_once(store: Store) -> None:
    new = new_schedule()
    assert store.add_schedule(new) == store.add_schedule(new)


def test_a_name_is_there_once_unless_it_is_replaced(store: Store, clock: Clock) -> None:
    first = store.add_schedule(new_schedule())
    with pytest.raises(StateConflict, match="there is a schedule nightly already"):
        store.add_schedule(new_schedule(cron="0 3 * * *"))
    assert store.schedule("nightly") == first
    clock.forward(days=1)
    changed = store.add_schedule(new_schedule(cron="0 3 * * *"), replace=True)
    assert (changed.id, changed.created_at, changed.cron) == (first.id, NOON, "0 3 * * *")
    assert changed.next_due_at == utc(2026, 3, 3, 3)


def test_what_is_not_there(store: Store) -> None:
    for ask in (store.schedule, store.pause_schedule, store.run_now):
        with pytest.raises(ScheduleNotFound, match="there is no schedule none"):
            ask("none")
    with pytest.raises(ScheduleNotFound):
        store.resume_schedule("none", next_time_of)
    assert not store.remove_schedule("none")


def test_evaluations_outlive_their_schedule(
    back: StoreUnderTest, store: Store, clock: Clock
) -> None:
    store.add_schedule(new_schedule())
    clock.to(TWO)
    tick(store)
    assert store.remove_schedule("nightly")
    assert store.schedules() == []
    assert len(evaluation_rows(back.database)) == 1


# ---- its time comes


def test_nothing_is_due_before_its_time(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule())
    clock.to(TWO - timedelta(seconds=1))
    assert store.seconds_to_next_tick() == 1
    assert tick(store) == 0
    assert evaluation_rows(back.database) == []


def test_a_time_becomes_one_evaluation(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    schedule = store.add_schedule(new_schedule())
    clock.to(TWO)
    assert (tick(store), tick(store)) == (1, 0)
    (row,) = evaluation_rows(back.database)
    assert row.id.startswith("eval_")
    assert (row.name, row.schedule_id, row.due_at) == ("nightly", schedule.id, TWO)
    assert (row.trigger, row.state) == (Trigger.CRON, EvaluationState.PENDING)
    assert (row.spec, row.expected_hash) == (SPEC, "a" * 64)
    assert (row.created_at, row.look_at, row.finished_at) == (TWO, TWO, None)
    assert due_times(store) == TWO + DAY
    assert store.seconds_to_next_tick() == DAY.total_seconds()


def test_without_schedules_there_is_nothing_to_wait_for(store: Store) -> None:
    assert store.seconds_to_next_tick() is None
    assert tick(store) == 0


def test_one_that_cannot_be_read_here_keeps_no_other_from_it(
    back: StoreUnderTest, store: Store, clock: Clock
) -> None:
    store.add_schedule(new_schedule("a"))
    store.add_schedule(new_schedule("b"))
    with back.database.begin() as connection:
        gone = update(schedules).where(schedules.c.name == "a")
        connection.execute(gone.values(timezone="Mars/Olympus"))
    clock.to(TWO)
    with pytest.raises(UsageError, match=r"schedule a cannot be ticked.*Mars/Olympus"):
        tick(store)
    assert [row.name for row in evaluation_rows(back.database)] == ["b"]
    assert due_times(store, "a") == TWO


@pytest.mark.parametrize("jump", [-3 * DAY, -timedelta(seconds=1)])
def test_a_clock_that_is_put_back_runs_nothing_again(
    back: StoreUnderTest, store: Store, clock: Clock, jump: timedelta
) -> None:
    store.add_schedule(new_schedule())
    clock.to(TWO)
    tick(store)
    clock.to(TWO + jump)
    # It is asked for the next time anew, and that is one that was run.
    store.pause_schedule("nightly")
    store.resume_schedule("nightly", next_time_of)
    for _ in range(5):
        clock.forward(days=1)
        tick(store)
    times = [row.due_at for row in evaluation_rows(back.database)]
    assert len(times) == len(set(times))
    assert TWO in times


def test_a_ticker_that_comes_late_moves_nothing_back(
    back: StoreUnderTest, store: Store, clock: Clock
) -> None:
    store.add_schedule(new_schedule())
    clock.to(TWO)
    _, (seen,) = store.due_schedules()
    clock.to(TWO + DAY)
    tick(store)
    rows = evaluation_rows(back.database)
    assert store.tick_schedule(seen, (TWO,), None, TWO + DAY) is None
    assert due_times(store) == TWO + 2 * DAY
    assert evaluation_rows(back.database) == rows


@pytest.mark.parametrize("years", [0.003, 5])
def test_a_clock_that_was_far_ahead_stops_no_schedule(
    back: StoreUnderTest, store: Store, clock: Clock, years: float
) -> None:
    store.add_schedule(new_schedule())
    clock.forward(days=365 * years)
    tick(store)
    clock.to(NOON)
    assert due_times(store) > TWO
    tick(store)
    assert due_times(store) == TWO
    clock.to(TWO)
    assert tick(store) == 0  # the one of the time that was not there yet still runs
    assert [row.due_at for row in evaluation_rows(back.database)].count(TWO) == 1
    assert due_times(store) == TWO + DAY


def test_only_what_lies_too_far_ahead_is_moved(store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule())
    store.add_schedule(new_schedule("paused", paused=True))
    store.add_schedule(new_schedule("yearly", "0 0 1 1 *"))
    before = store.schedules()
    tick(store)
    assert store.schedules() == before


def test_what_has_run_does_not_run_again_once_the_clock_is_right(
    back: StoreUnderTest, store: Store, clock: Clock
) -> None:
    store.add_schedule(new_schedule(overlap=Overlap.WAIT))
    clock.to(TWO)
    assert tick(store) == 1
    clock.to(NOON)
    tick(store)
    assert due_times(store) == TWO
    clock.to(TWO)
    assert tick(store) == 0
    clock.to(TWO + DAY)
    assert tick(store) == 1


# ---- looking again and again


class Clocked:
    """A store whose next time is so many seconds away."""

    def __init__(self, left: float | None, due: bool = False) -> None:
        self.left = left
        self.due = due

    def due_schedules(self) -> tuple[datetime, list[ScheduleRecord]]:
        if self.due:
            raise DatabaseUnavailable("away")
        return NOON, []

    def schedules_ahead(self) -> tuple[datetime, list[ScheduleRecord]]:
        return NOON, []

    def seconds_to_next_tick(self) -> float | None:
        return self.left


@pytest.mark.parametrize(
    ("left", "seconds"), [(None, 15.0), (3600.0, 15.0), (2.5, 2.502), (0.0, 0.002), (-9.0, 0.002)]
)
def test_it_looks_again_when_the_next_time_comes(left: float | None, seconds: float) -> None:
    clocked: Any = Clocked(left)
    assert seconds_to_next(clocked, 15.0) == pytest.approx(seconds)


def test_a_database_that_is_away_is_not_asked_without_end() -> None:
    clocked: Any = Clocked(0.001)
    ticker = Ticker(clocked, 15.0, lambda: None)
    ticker.look()
    assert ticker.seconds < 1
    clocked.due = True
    with pytest.raises(DatabaseUnavailable):
        ticker.look()
    assert ticker.seconds == 15.0


# ---- times that nobody was there for


def test_the_latest_is_run_and_the_others_are_told_of(
    back: StoreUnderTest, store: Store, clock: Clock
) -> None:
    store.add_schedule(new_schedule())
    clock.to(TWO + 3 * DAY)
    assert tick(store) == 1
    missed, run = evaluation_rows(back.database)
    assert (missed.due_at, missed.state, missed.error_code) == (TWO, "skipped", "missed")
    assert missed.error_message == (
        "its time passed while neither `pagemill beat` nor a worker ran, and so did all times "
        "until 2026-03-04 02:00 UTC that are not listed; catch-up is latest"
    )
    assert missed.finished_at == clock.now
    assert (run.due_at, run.state) == (TWO + 3 * DAY, "pending")


def test_none_is_run(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule(catch_up=CatchUp.SKIP))
    clock.to(TWO + timedelta(hours=1))
    assert tick(store) == 0
    (row,) = evaluation_rows(back.database)
    assert (row.state, row.error_code) == ("skipped", "missed")
    assert row.error_message == (
        "its time passed while neither `pagemill beat` nor a worker ran; catch-up is skip"
    )
    assert due_times(store) == TWO + DAY


def test_all_are_run_in_order(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule(catch_up=CatchUp.ALL, overlap=Overlap.WAIT))
    clock.to(TWO + 2 * DAY)
    assert tick(store) == 3
    assert [row.due_at for row in evaluation_rows(back.database, state="pending")] == [
        TWO,
        TWO + DAY,
        TWO + 2 * DAY,
    ]


def test_what_passes_in_a_pause_is_not_caught_up(
    back: StoreUnderTest, store: Store, clock: Clock
) -> None:
    store.add_schedule(new_schedule(catch_up=CatchUp.ALL, overlap=Overlap.WAIT))
    paused = store.pause_schedule("nightly")
    assert (paused.paused_at, paused.next_due_at) == (NOON, None)
    clock.to(TWO + 2 * DAY)
    assert store.pause_schedule("nightly") == paused
    assert (tick(store), store.seconds_to_next_tick()) == (0, None)
    resumed = store.resume_schedule("nightly", next_time_of)
    assert (resumed.paused_at, resumed.next_due_at) == (None, TWO + 3 * DAY)
    assert store.resume_schedule("nightly", next_time_of) == resumed
    assert tick(store) == 0
    assert evaluation_rows(back.database) == []


def test_one_that_is_added_paused(store: Store, clock: Clock) -> None:
    made = store.add_schedule(new_schedule(paused=True))
    assert (made.paused_at, made.next_due_at) == (NOON, None)


# ---- an earlier one still runs


def test_it_is_skipped_and_says_so(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule())
    clock.to(TWO)
    tick(store)
    (first,) = evaluation_rows(back.database)
    set_state(back.database, first.id, EvaluationState.ANSWERING)
    clock.forward(days=1)
    assert tick(store) == 0
    _, second = evaluation_rows(back.database)
    assert (second.state, second.error_code) == ("skipped", "overlap")
    assert second.error_message == f"the evaluation {first.id} was still answering at its time"
    set_state(back.database, first.id, EvaluationState.FAILED)
    clock.forward(days=1)
    assert tick(store) == 1


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.WAIT])
def test_one_of_a_schedule_that_was_removed_still_runs(
    back: StoreUnderTest, store: Store, clock: Clock, overlap: Overlap
) -> None:
    store.add_schedule(new_schedule(overlap=overlap))
    clock.to(TWO)
    tick(store)
    (first,) = evaluation_rows(back.database)
    set_state(back.database, first.id, EvaluationState.SCORING)
    store.remove_schedule("nightly")
    add_evaluation(store)  # by `eval run`, of the same name: that is nobody's overlap
    store.add_schedule(new_schedule(overlap=overlap))
    clock.forward(days=1)
    begun = tick(store)
    (second,) = (row for row in evaluation_rows(back.database) if row.due_at == clock.now)
    if overlap is Overlap.SKIP:
        assert (begun, second.state, second.error_code) == (0, "skipped", "overlap")
        with pytest.raises(StateConflict, match=first.id):
            store.run_now("nightly")
    else:
        assert (begun, store.evaluation_waited_for(second.id)) == (1, first.id)
        assert second.id not in store.evaluations_due()
    set_state(back.database, first.id, EvaluationState.COMPLETED)
    assert store.evaluation_waited_for(second.id) is None
    assert store.run_now("nightly")


def test_it_waits_for_those_before_it(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule(overlap=Overlap.WAIT))
    store.add_schedule(new_schedule("other", "0 5 * * *"))
    begun = []
    for _ in range(3):
        clock.forward(days=1)
        begun.append(tick(store))
    assert begun == [2, 1, 1]  # the other one skips
    (other, *_), mine = (evaluation_rows(back.database, name=n) for n in ("other", "nightly"))
    assert set(store.evaluations_due()) == {other.id, mine[0].id}
    set_state(back.database, mine[0].id, EvaluationState.SCORING)
    assert set(store.evaluations_due()) == {other.id, mine[0].id}
    set_state(back.database, mine[0].id, EvaluationState.COMPLETED)
    assert set(store.evaluations_due()) == {other.id, mine[1].id}


def test_missed_ones_wait_for_each_other(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule(catch_up=CatchUp.ALL, overlap=Overlap.WAIT))
    clock.to(TWO + 2 * DAY)
    assert tick(store) == 3
    for row in evaluation_rows(back.database):
        assert store.evaluations_due() == [row.id]
        set_state(back.database, row.id, EvaluationState.COMPLETED)


def test_both_run(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    store.add_schedule(new_schedule(overlap=Overlap.ALLOW))
    for _ in range(2):
        clock.forward(days=1)
        assert tick(store) == 1
    assert len(store.evaluations_due()) == 2


# ---- by hand


def test_one_is_run_now(back: StoreUnderTest, store: Store, clock: Clock) -> None:
    schedule = store.add_schedule(new_schedule(paused=True))
    evaluation_id = store.run_now("nightly")
    (row,) = evaluation_rows(back.database)
    assert (row.id, row.trigger, row.due_at) == (evaluation_id, Trigger.MANUAL, None)
    assert (row.schedule_id, row.state, row.spec) == (schedule.id, "pending", SPEC)
    with pytest.raises(StateConflict, match=f"{evaluation_id} of the schedule nightly is still"):
        store.run_now("nightly")
    set_state(back.database, evaluation_id, EvaluationState.COMPLETED)
    assert store.run_now("nightly") != evaluation_id


@pytest.mark.parametrize("overlap", [Overlap.WAIT, Overlap.ALLOW])
def test_two_are_run_now(
    back: StoreUnderTest, store: Store, clock: Clock, overlap: Overlap
) -> None:
    store.add_schedule(new_schedule(overlap=overlap))
    assert store.run_now("nightly") != store.run_now("nightly")
    assert len(store.evaluations_due()) == (1 if overlap is Overlap.WAIT else 2)


def test_the_clock_of_the_database_is_the_one_that_counts(
    back: StoreUnderTest, store: Store
) -> None:
    """Without a held clock: the statements themselves."""
    store.add_schedule(new_schedule(cron="* * * * *"))
    left = store.seconds_to_next_tick()
    assert left is not None
    assert -30 < left <= 60
    cron = parse_cron("* * * * *", "UTC")
    assert store.schedule("nightly").next_due_at in (
        cron.next(store.now()),
        cron.next(store.now() - timedelta(minutes=1)),
    )
