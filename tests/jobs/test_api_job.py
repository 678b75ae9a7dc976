"""A `Job` in Python: what it says is what the command line says."""

from __future__ import annotations

import dataclasses
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs import (
    Job,
    JobNotFound,
    JobState,
    JobStatus,
    Settings,
    StateConflict,
    UsageError,
    WaitTimedOut,
    finalize,
    list_jobs,
    submit,
)
from jobs.database import Database
from jobs.storage import Storage
from jobs.store import Store
from tests.support.command_line import CommandLine
from tests.support.played_job import MODEL, PlayedJob
from tests.support.still_clock import stand_still

ROWS: list[dict[str, Any]] = [{"prompt": f"row {n}", "topic": "a"} for n in range(6)]


@pytest.fixture
def job(cli: CommandLine) -> Job:
    return submit([*ROWS, {"nothing": 1}], model=MODEL, chunk_rows=2, name="sums")


def play(cli: CommandLine, job: Job, failing: set[int] | None = None) -> None:
    """Answer everything, as a worker would."""
    with cli.store() as store:
        PlayedJob(store, cli.storage, job.id, failing or set()).finish_all()
        finalize.drive(store, cli.storage, "worker")


def play_one_chunk(cli: CommandLine, job: Job) -> None:
    with cli.store() as store:
        played = PlayedJob(store, cli.storage, job.id)
        played.finish(played.claim())


# ---- looking


def as_printed(status: JobStatus) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return list(value)
        return value.isoformat() if isinstance(value, datetime) else value

    return {name: plain(value) for name, value in dataclasses.asdict(status).items()}


def test_a_status_is_what_the_command_line_prints(cli: CommandLine, job: Job) -> None:
    def check(state: JobState) -> JobStatus:
        status = job.status()
        assert as_printed(status) == cli.json("status", job.id)
        assert status.state is state
        return status

    assert check(JobState.QUEUED).waiting_for == f"a worker of {MODEL}"
    play_one_chunk(cli, job)
    status = check(JobState.IN_PROGRESS)
    assert (status.rows.completed, status.rows.failed, status.rows.done) == (2, 1, 3)
    assert not status.ended
    assert str(status) == f"{job.id} in_progress, 3 of 7 rows done"
    job.pause()
    assert str(check(JobState.IN_PROGRESS)) == f"{job.id} in_progress (paused), 3 of 7 rows done"
    job.resume()
    play(cli, job)
    status = check(JobState.COMPLETED)
    assert status.ended
    assert status.finished_at is not None
    assert status.finished_at.tzinfo is not None


def test_a_job_that_failed_says_why(cli: CommandLine, job: Job) -> None:
    with cli.store() as store:
        store.fail_job(job.id, "model_unavailable", "no such model")
    error = job.status().error
    assert error is not None
    assert (error.code, error.message) == ("model_unavailable", "no such model")
    assert as_printed(job.status()) == cli.json("status", job.id)


def test_a_job_is_found_by_the_start_of_its_id(job: Job) -> None:
    assert Job.get(job.id[:20]) == job
    assert Job.get(job.id).id == job.id
    assert repr(job) == f"Job({job.id!r})"
    assert len({job, Job.get(job.id)}) == 1
    with pytest.raises(JobNotFound):
        Job.get("job_zzzzzzzz")


def test_jobs_are_listed_by_state_the_newest_first(job: Job) -> None:
    newer = submit(ROWS, model=MODEL)
    assert list_jobs() == Job.list() == [newer, job]
    assert list_jobs(limit=1) == [newer]
    job.cancel()
    assert list_jobs("queued") == [newer]
    assert list_jobs(JobState.CANCELLED) == [job]
    assert list_jobs({"queued", JobState.CANCELLED}) == [newer, job]
    assert list_jobs(name="SUM") == Job.list(name="sum") == [job]
    assert list_jobs(model="other") == []
    assert list_jobs(model=MODEL, since="1h") == list_jobs(since=timedelta(hours=1)) == [newer, job]
    assert list_jobs(since=datetime.now(UTC)) == []
    with pytest.raises(UsageError, match="there is no state 'done'"):
        list_jobs(["done"])
    with pytest.raises(UsageError, match="limit is 0"):
        list_jobs(limit=0)


@pytest.mark.parametrize("published", [False, True])
def test_errors_are_those_that_the_command_line_lists(
    cli: CommandLine, job: Job, published: bool
) -> None:
    if published:
        play(cli, job, failing={1})
    found = [dataclasses.asdict(failure) for failure in job.errors()]
    assert found == cli.json("errors", job.id)
    assert [failure["code"] for failure in found] == [*["nan_logits"] * published, "missing_prompt"]
    assert [failure.row_index for failure in job.errors("missing_prompt")] == [6]
    assert [failure.row_index for failure in job.errors({"nan_logits"})] == [1] * published


def test_events_tell_what_was_done(job: Job) -> None:
    job.cancel()
    assert [event.event for event in job.events()][:2] == ["submitted", "cancel_requested"]
    job.delete()
    assert job.events()[-1].event == "deleted"


# ---- waiting


def test_waiting_ends_with_the_job(cli: CommandLine, job: Job) -> None:
    worker = threading.Timer(0.5, play, (cli, job))
    worker.start()
    try:
        status = job.wait(timeout=60)
    finally:
        worker.join()
    assert status == job.status()
    assert status.state is JobState.COMPLETED
    assert job.wait() == status


def test_waiting_may_be_too_short(cli: CommandLine, job: Job) -> None:
    with pytest.raises(WaitTimedOut, match=r"within 0\.1 s; no worker of the-model is alive"):
        job.wait(timeout=0.1)
    job.pause()
    with pytest.raises(TimeoutError, match="is paused since"):
        job.wait(timeout=0, progress=False)
    assert job.status().state is JobState.QUEUED


def test_waiting_shows_a_bar_in_a_notebook(
    cli: CommandLine,
    job: Job,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In any: what rich itself shows there needs a package that may not be installed."""

    class ZMQInteractiveShell:
        """What a notebook is known by."""

    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    play_one_chunk(cli, job)
    with pytest.raises(WaitTimedOut):
        job.wait(timeout=0)
    play(cli, job)
    job.wait()
    out, err = capsys.readouterr()
    first, second, _ = err.split("\n")
    assert out == ""
    assert first.startswith("\r━")
    assert "in_progress  2/7 rows answered  1 error" in first
    assert "completed  6/7 rows answered" in second
    assert second.count("━") > 2 * first.count("━")
    job.wait(progress=False)
    assert capsys.readouterr() == ("", "")


def test_what_is_told_in_a_notebook_has_a_line_of_its_own(
    cli: CommandLine,
    job: Job,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ZMQInteractiveShell:
        """What a notebook is known by."""

    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("jobs.cli.why_it_waits.PATIENCE_SECONDS", 0.3)
    stand_still(monkeypatch)
    caplog.clear()
    with pytest.raises(WaitTimedOut):
        job.wait(timeout=1)
    assert caplog.messages == [
        f"no worker of {MODEL} is alive; start one with "
        f"`pagemill worker --model {MODEL} --exit-when-done {job.id}`"
    ]
    assert [line.count("1 error") for line in capsys.readouterr().err.split("\n")] == [1, 1, 0]


def test_waiting_shows_a_bar_on_a_terminal_and_nothing_elsewhere(
    cli: CommandLine,
    job: Job,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(cli, job)
    job.wait()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    job.wait()
    assert "6/7 rows answered" in capsys.readouterr().err


# ---- changing


def test_a_cancelled_job_is_published(cli: CommandLine, job: Job) -> None:
    play_one_chunk(cli, job)
    assert job.cancel().state is JobState.CANCELLED
    assert job.cancel().rows.completed == 2
    assert [row["text"] is not None for row in job.results()].count(True) == 2


def test_a_paused_job_is_not_begun(cli: CommandLine, job: Job) -> None:
    assert job.pause().paused_at is not None
    with cli.store() as store:
        assert store.claim_chunk("w", MODEL) is None
        assert job.resume().paused_at is None
        assert store.claim_chunk("w", MODEL) is not None


def test_failed_rows_are_answered_again_as_a_new_version(cli: CommandLine, job: Job) -> None:
    play(cli, job, failing={1, 4})
    assert job.retry().version == 2
    with pytest.raises(StateConflict, match="is queued"):
        job.retry()
    play(cli, job)
    assert [failure.row_index for failure in job.errors()] == [6]
    assert [row["row_index"] for row in job.results(version=1) if row["error"]] == [1, 4, 6]
    assert job.results().version == 2


def test_a_deleted_job_is_gone(cli: CommandLine, job: Job) -> None:
    job.cancel()
    job.delete()
    job.delete()
    assert list_jobs() == []
    assert not (cli.home / "storage" / job.id).exists()
    with pytest.raises(JobNotFound):
        job.status()
    with pytest.raises(JobNotFound):
        Job("job_zzzzzzzzzzzzzzzzzzzz").delete()


# ---- connections and threads


def test_nothing_stays_open_between_calls(cli: CommandLine, job: Job) -> None:
    job.status()
    next(iter(job.results(partial=True)))
    list(job.errors())
    with pytest.raises(WaitTimedOut):
        job.wait(timeout=0)
    opened = [file.path for file in psutil.Process().open_files()]
    assert not [path for path in opened if path.startswith(str(cli.home))]


def test_all_of_it_works_on_each_database(database_url: str, tmp_path: Path) -> None:
    settings = Settings(database_url, "memory://localhost", str(tmp_path / "storage"))
    job = submit(ROWS, model=MODEL, chunk_rows=2, settings=settings)
    assert (job.pause().paused_at is None, job.resume().paused_at is None) == (False, True)
    database, storage = Database(database_url), Storage(settings.storage_url)
    store = Store(database)
    PlayedJob(store, storage, job.id, {2}).finish_all()
    finalize.drive(store, storage, "worker")
    database.close()
    assert job.wait(timeout=60).state is JobState.COMPLETED
    assert [row["row_index"] for row in job.results() if row["error"]] == [2]
    assert [failure.code for failure in job.errors()] == ["nan_logits"]
    assert job.retry().version == 2
    assert job.cancel().state is JobState.CANCELLED
    assert list_jobs(since="1h", settings=settings) == [job]
    job.delete()
    assert list_jobs(settings=settings) == []
    assert job.events()[-1].event == "deleted"


def test_threads_may_share_a_job(cli: CommandLine, job: Job) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: job.pause() and job.status(), range(16)))
    assert {status.id for status in found} == {job.id}
