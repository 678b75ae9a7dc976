"""Merges and finalizations that fail: what may pass is waited for, what may not ends the job."""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs import finalize
from jobs.attempts import MOST_DEATHS, MOST_FAILURES
from jobs.database import Database
from jobs.errors import DatabaseUnavailable, StorageError, StorageUnavailable
from jobs.finalize import drive
from jobs.results import open_partial
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store, events
from tests.support.played_job import PlayedJob, Window, add_job

WINDOWS = [Window([[2, 0], [3]], rejected=[1]), Window([[5, 4]])]
ROWS = 6
LEASE_SECONDS = 0.05

# A function of each step, and how the step is called.
STEPS = {
    "describe": "merging window 0",
    "gathered": "merging window 0",
    "manifest_bytes": "publishing",
    "_errors_of_stopped": "publishing",
}


class Death(BaseException):
    """Ends a try as a `kill -9` of its process does: nothing is told to anybody."""


@pytest.fixture
def hasty(database_url: str) -> Iterator[Store]:
    """A store whose leases run out at once."""
    database = Database(database_url)
    yield Store(database, lease_seconds=LEASE_SECONDS)
    database.close()


@pytest.fixture
def job(hasty: Store, tmp_path: Path) -> PlayedJob:
    job = add_job(hasty, Storage(str(tmp_path / "storage")), WINDOWS)
    job.finish_all()
    return job


def failing(patch: pytest.MonkeyPatch, name: str, error: BaseException, times: int = 10**6) -> None:
    """Let a function of `jobs.finalize` fail so often."""
    real = getattr(finalize, name)
    left = [times]

    def call(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return real(*arguments)

    patch.setattr(finalize, name, call)


def driven(job: PlayedJob, times: int) -> None:
    """What sweepers do, each time when the leases have run out."""
    for _ in range(times):
        drive(job.store, job.storage, "sweeper", job.id)
        time.sleep(1.5 * LEASE_SECONDS)


def failures(job: PlayedJob) -> list[str]:
    return [e.detail or "" for e in job.store.events(job.id) if e.event == "unfinished"]


def to_the_end(job: PlayedJob) -> None:
    deadline = time.monotonic() + 60
    while not job.store.job(job.id).state.terminal:
        assert time.monotonic() < deadline
        driven(job, 1)
    record = job.store.job(job.id)
    assert (record.state, record.waiting_for) == (JobState.COMPLETED, None)
    assert [row["row_index"] for row in job.published()] == list(range(ROWS))


@pytest.mark.parametrize("function", STEPS)
def test_what_nobody_foresaw_fails_the_job_after_some_tries(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    failing(monkeypatch, function, ValueError("a bug"))
    driven(job, 1)
    record = job.store.job(job.id)
    assert not record.state.terminal
    assert record.waiting_for is not None
    assert re.fullmatch("another try, as .* failed: ValueError: a bug", record.waiting_for)

    with caplog.at_level(logging.ERROR):
        driven(job, 2 * MOST_FAILURES)
    record = job.store.job(job.id)
    assert (record.state, record.error_code) == (JobState.FAILED, "internal_error")
    step = f"{STEPS[function]} failed {MOST_FAILURES} times, the last time with ValueError: a bug"
    assert (record.error_message or "").startswith(step)
    assert failures(job).count(f"version 1, {STEPS[function]}: ValueError: a bug") == MOST_FAILURES
    assert "Traceback" in caplog.text
    assert record.waiting_for is None

    monkeypatch.undo()  # the bug is mended: what was answered can still be read
    rows = [r for t in open_partial(job.store, job.storage, record).groups() for r in t.to_pylist()]
    assert [row["row_index"] for row in rows] == list(range(ROWS))


@pytest.mark.parametrize("function", STEPS)
def test_what_nobody_foresaw_and_passes_costs_nothing(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    failing(monkeypatch, function, ValueError("a bug"), MOST_FAILURES - 1)
    to_the_end(job)
    assert len(failures(job)) == MOST_FAILURES - 1


def test_windows_are_counted_apart(job: PlayedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two windows that fail four times each make no job that fails."""
    failing(monkeypatch, "describe", ValueError("a bug"), 2 * (MOST_FAILURES - 1))
    to_the_end(job)
    assert len(failures(job)) == 2 * (MOST_FAILURES - 1)


@pytest.mark.parametrize("error", [ValueError("a bug"), Death()], ids=["errors", "deaths"])
def test_they_are_counted_however_many_other_events_there_are(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Of a job with thousands of chunks that fail in turn, old events are forgotten."""
    monkeypatch.setattr(events, "KEPT", 3)
    failing(monkeypatch, "describe", error)
    for _ in range(2 * (MOST_FAILURES + MOST_DEATHS)):
        with contextlib.suppress(Death):
            drive(job.store, job.storage, "sweeper", job.id)
        for _ in range(4):
            job.store._database.transact(lambda c: events.record(c, job.id, events.REQUEUED, "1"))
        time.sleep(1.5 * LEASE_SECONDS)
        if job.store.job(job.id).state is JobState.FAILED:
            break
    assert job.store.job(job.id).error_code == "internal_error"
    assert sum(e.event not in events.COUNTED for e in job.store.events(job.id)) <= 3


PASSING = {
    "no memory": MemoryError(),
    "no memory for arrow": pa.lib.ArrowMemoryError("malloc of size 64 failed"),
    "too many files": OSError(errno.EMFILE, "Too many open files"),
    "a disk that fails": OSError(errno.EIO, "Input/output error"),
    "a full disk": StorageUnavailable("the disk is full", "room in the storage"),
    "a link in the storage": StorageError("leads through a symbolic link"),
    "a database that is away": DatabaseUnavailable("database: it is away"),
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("error", PASSING.values(), ids=list(PASSING))
@pytest.mark.parametrize("function", ["describe", "manifest_bytes"])
def test_what_may_pass_is_waited_for_however_long(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    failing(monkeypatch, function, error, 3 * MOST_FAILURES)
    driven(job, MOST_FAILURES + 1)
    record = job.store.job(job.id)
    assert not record.state.terminal
    assert failures(job) == deaths(job) == []
    if not isinstance(error, DatabaseUnavailable):
        assert record.waiting_for is not None
    to_the_end(job)


@pytest.mark.quick
def test_memory_that_runs_out_is_no_damaged_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow says so by one of its own errors, in the middle of a part."""
    job = add_job(store, Storage(str(tmp_path / "storage")), WINDOWS)
    job.finish_all()

    def no_memory(*arguments: Any) -> Any:
        raise pa.lib.ArrowMemoryError("malloc of size 64 failed")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.parts._aligned", no_memory)
        drive(store, job.storage, "me")
    record = store.job(job.id)
    assert not record.state.terminal
    assert "malloc of size 64 failed" in (record.waiting_for or "")


def test_one_job_that_cannot_be_finished_keeps_no_other_from_its_end(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = add_job(job.store, job.storage, WINDOWS)
    other.finish_all()
    real = finalize.describe

    def only_of_one(folder: Any, path: str) -> Any:
        if folder.path.name == job.id:
            raise ValueError("a bug")
        return real(folder, path)

    monkeypatch.setattr(finalize, "describe", only_of_one)
    drive(job.store, job.storage, "sweeper")
    assert not job.store.job(job.id).state.terminal
    assert other.store.job(other.id).state is JobState.COMPLETED


DIES = """
import os, signal, sys
from jobs import finalize
from jobs.database import Database
from jobs.storage import Storage
from jobs.store import Store

def deadly(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(finalize, sys.argv[3], deadly)
finalize.drive(Store(Database(sys.argv[1]), lease_seconds=0.05), Storage(sys.argv[2]), "process")
"""


def deaths(job: PlayedJob) -> list[str]:
    return [e.detail or "" for e in job.store.events(job.id) if e.event == "never_ended"]


def died(job: PlayedJob, times: int) -> None:
    for _ in range(times):
        with pytest.raises(Death):
            drive(job.store, job.storage, "sweeper", job.id)
        time.sleep(1.5 * LEASE_SECONDS)


@pytest.mark.parametrize("function", STEPS)
def test_a_step_that_kills_whoever_takes_it_ends_the_job_and_not_the_fleet(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    failing(monkeypatch, function, Death())
    died(job, MOST_DEATHS)
    assert len(deaths(job)) == MOST_DEATHS - 1
    assert not job.store.job(job.id).state.terminal
    driven(job, 1)  # it does not even begin
    record = job.store.job(job.id)
    assert (record.state, record.error_code) == (JobState.FAILED, "internal_error")
    begun = f"{STEPS[function]} was begun {MOST_DEATHS} times by processes that died in it"
    assert (record.error_message or "").startswith(begun)
    assert "the last time by sweeper;" in (record.error_message or "")
    assert deaths(job) == [f"version 1, {STEPS[function]}: sweeper"] * MOST_DEATHS
    rows = [r for t in open_partial(job.store, job.storage, record).groups() for r in t.to_pylist()]
    assert [row["row_index"] for row in rows] == list(range(ROWS))


@pytest.mark.parametrize("function", STEPS)
def test_some_deaths_cost_nothing(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    failing(monkeypatch, function, Death(), MOST_DEATHS - 1)
    died(job, MOST_DEATHS - 1)
    to_the_end(job)
    assert len(deaths(job)) == MOST_DEATHS - 1
    assert failures(job) == []


@pytest.mark.parametrize("function", ["gathered", "manifest_bytes"])
def test_a_process_that_was_killed_is_counted(
    job: PlayedJob, database_url: str, function: str
) -> None:
    command = [sys.executable, "-c", DIES, database_url, str(job.storage.root), function]
    killed = subprocess.run(command, timeout=120, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    time.sleep(1.5 * LEASE_SECONDS)
    to_the_end(job)
    assert deaths(job) == [f"version 1, {STEPS[function]}: process"]


FAILS = """
import sys
from jobs import finalize
from jobs.database import Database
from jobs.storage import Storage
from jobs.store import Store

def broken(*arguments):
    raise ValueError("a bug")

finalize.describe = broken
finalize.drive(Store(Database(sys.argv[1]), lease_seconds=0.05), Storage(sys.argv[2]), "process")
"""


def test_the_tries_of_all_processes_are_counted(job: PlayedJob, database_url: str) -> None:
    command = [sys.executable, "-c", FAILS, database_url, str(job.storage.root)]
    for number in range(1, MOST_FAILURES + 1):
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        assert job.store.job(job.id).state.terminal == (number == MOST_FAILURES)
    assert job.store.job(job.id).error_code == "internal_error"
