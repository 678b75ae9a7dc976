"""Several that look at the clock at once, and die in the middle: each time is there once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.records.evaluations import CatchUp, Overlap
from jobs.schedules.ticking import tick
from jobs.settings import MEMORY_BROKER, Settings
from tests.support.child import child
from tests.support.crash_points import OF_A_TICK, arm_commands
from tests.support.deployment import wait_for
from tests.support.job_store import StoreUnderTest
from tests.support.schedules import evaluation_rows, make_due, new_schedule
from tests.support.tickers import tick_all

TICKERS = 4
TIMES = 40
BEAT = [sys.executable, "-P", "-m", "jobs", "beat"]


def env_of(back: StoreUnderTest, home: Path, sweep_seconds: float) -> dict[str, str]:
    settings = Settings(
        database_url=back.database.url.render_as_string(hide_password=False),
        broker_url=MEMORY_BROKER,
        storage_url=str(home / "storage"),
        sweep_seconds=sweep_seconds,
    )
    return {**os.environ, **settings.to_env(), "PAGEMILL_HOME": str(home)}


@contextmanager
def beating(back: StoreUnderTest, home: Path, sweep_seconds: float) -> Iterator[None]:
    env = env_of(back, home, sweep_seconds)
    with child(BEAT, env=env, stderr=subprocess.DEVNULL) as beat:
        yield
        beat.terminate()
        beat.wait(timeout=120)


def tickers(back: StoreUnderTest) -> Executor:
    """Processes on SQLite, whose locks are those of files; threads on PostgreSQL."""
    if back.database.engine.dialect.name == "sqlite":
        return ProcessPoolExecutor(TICKERS, mp_context=multiprocessing.get_context("spawn"))
    return ThreadPoolExecutor(TICKERS)


def test_each_time_is_inserted_by_one_of_them(back: StoreUnderTest) -> None:
    schedule = back.store.add_schedule(
        new_schedule(cron="* * * * *", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    )
    first = schedule.next_due_at
    assert first is not None
    last = first + timedelta(minutes=TIMES - 1)
    url = back.database.url.render_as_string(hide_password=False)
    with tickers(back) as pool:
        asked = [pool.submit(tick_all, url, TIMES * 2, last) for _ in range(TICKERS)]
        inserted = [future.result() for future in asked]
    rows = evaluation_rows(back.database)
    assert [row.due_at for row in rows] == [first + timedelta(minutes=i) for i in range(TIMES)]
    assert sum(inserted) == TIMES
    assert back.store.schedule("nightly").next_due_at == last + timedelta(minutes=1)


def test_all_that_look_at_one_moment(back: StoreUnderTest) -> None:
    schedule = back.store.add_schedule(new_schedule())
    make_due(back.database, schedule, 5)
    with ThreadPoolExecutor(TICKERS) as pool:
        begun = [pool.submit(tick, back.store) for _ in range(TICKERS)]
        assert sum(future.result() for future in begun) == 1
    assert len(evaluation_rows(back.database)) == 1


@pytest.mark.parametrize("point", OF_A_TICK)
def test_a_beat_that_is_killed_loses_and_doubles_nothing(
    back: StoreUnderTest, tmp_path: Path, point: str
) -> None:
    schedule = back.store.add_schedule(new_schedule())
    make_due(back.database, schedule, 5)
    due_at = back.store.schedule("nightly").next_due_at
    armed = env_of(back, tmp_path, 0.2) | arm_commands(point, "jobs", tmp_path / "armed")
    died = subprocess.run(BEAT, env=armed, capture_output=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    committed = OF_A_TICK[point].method == "tick_schedule" and OF_A_TICK[point].when == "after"
    assert len(evaluation_rows(back.database)) == (1 if committed else 0)
    with beating(back, tmp_path, sweep_seconds=0.2):
        moved = "the schedule to be moved on"
        wait_for(moved, lambda: back.store.schedule("nightly").next_due_at != due_at, timeout=60)
    assert [row.due_at for row in evaluation_rows(back.database)] == [due_at]


def test_a_beat_wakes_when_the_time_comes(back: StoreUnderTest, tmp_path: Path) -> None:
    """Although its next round would be an hour away."""
    schedule = back.store.add_schedule(new_schedule())
    make_due(back.database, schedule, -2)
    with beating(back, tmp_path, sweep_seconds=3600):
        rows = lambda: evaluation_rows(back.database)  # noqa: E731
        wait_for("the evaluation", lambda: bool(rows()), timeout=60)
    assert len(rows()) == 1
