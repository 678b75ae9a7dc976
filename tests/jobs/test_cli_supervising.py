"""What `run` makes of a worker's end; small programs stand where the worker is started."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
import typer

from jobs.cli.deployment import Deployment
from jobs.cli.supervising import Interruptions, Supervisor
from jobs.cli.worker_process import MAX_FRUITLESS_STARTS, WorkerProcess
from jobs.records import Counts, JobRecord
from jobs.settings import Settings
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def job(store: Store, tmp_path: Path) -> PlayedJob:
    return add_job(store, Storage(str(tmp_path)), [Window([[0], [1]])])


def supervise(job: PlayedJob, program: str, tmp_path: Path) -> JobRecord:
    deployment = Deployment(
        Settings.from_env({"PAGEMILL_HOME": str(tmp_path)}), job.store, job.storage
    )
    worker = WorkerProcess(
        [sys.executable, "-c", program], {"MARK": "1"}, tmp_path / "logs" / "log"
    )
    worker.start()
    try:
        return Supervisor(
            deployment, job.store.job(job.id), worker, lambda progress: None, Interruptions()
        ).run()
    finally:
        worker.close()


def test_an_error_before_any_work_fails_the_job_with_its_sentence(
    job: PlayedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys\n"
        "print('2030-01-31 08:00:00,000 INFO pagemill.worker loading', file=sys.stderr)\n"
        "print('2030-01-31 08:00:00,000 ERROR pagemill.worker no such model: m', file=sys.stderr)\n"
        "print('some library says goodbye', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )

    with pytest.raises(typer.Exit) as ended:
        supervise(job, program, tmp_path)

    assert ended.value.exit_code == 1
    record = job.store.job(job.id)
    assert (record.state, record.error_code) == (JobState.FAILED, "model_unavailable")
    assert record.error_message == "no such model: m"
    assert "Error: no such model: m\n" in capsys.readouterr().err


def test_the_sentence_is_found_in_a_log_of_json_too(
    job: PlayedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys\n"
        "from engine.logs import configure_logging, log\n"
        "configure_logging('json', process='worker')\n"
        "log.info('loading')\n"
        "log.error('no such model: m', extra={'worker_id': 'h:1:x'})\n"
        "log.info('leaving')\n"
        "sys.exit(3)\n"
    )

    with pytest.raises(typer.Exit):
        supervise(job, program, tmp_path)

    assert job.store.job(job.id).error_message == "no such model: m"
    assert "Error: no such model: m\n" in capsys.readouterr().err


def test_a_crash_before_any_work_fails_the_job_with_its_last_line(
    job: PlayedJob, tmp_path: Path
) -> None:
    with pytest.raises(typer.Exit):
        supervise(job, "raise RuntimeError('out of luck')", tmp_path)

    record = job.store.job(job.id)
    assert (record.error_code, record.error_message) == (
        "worker_failed",
        "RuntimeError: out of luck",
    )


def test_an_error_after_work_began_leaves_the_job_resumable(
    job: PlayedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.finish(job.claim())

    with pytest.raises(typer.Exit) as ended:
        supervise(job, "import sys; sys.exit('the disk is full')", tmp_path)

    assert ended.value.exit_code == 1
    assert job.store.job(job.id).state is JobState.IN_PROGRESS
    said = capsys.readouterr().err
    assert "Error: the disk is full" in said
    assert f"pagemill wait {job.id}" in said
    assert str(tmp_path / "logs" / "log") in said


def test_a_worker_that_is_killed_each_time_is_given_up(
    job: PlayedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        supervise(job, f"print('start', flush=True); {KILL}", tmp_path)

    assert ended.value.exit_code == 1
    starts = (tmp_path / "logs" / "log").read_text().count("start")
    assert starts == 1 + MAX_FRUITLESS_STARTS
    said = capsys.readouterr().err
    assert len(re.findall("started again", said)) == MAX_FRUITLESS_STARTS
    assert "again and again" in said


def test_progress_counts_once(
    job: PlayedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was finished long ago does not make later starts any less in vain."""
    real = WorkerProcess.start
    starts = 0

    def start(worker: WorkerProcess) -> None:
        nonlocal starts
        starts += 1
        if starts == 2:
            job.finish(job.claim())
        real(worker)

    monkeypatch.setattr(WorkerProcess, "start", start)

    with pytest.raises(typer.Exit):
        supervise(job, KILL, tmp_path)

    assert starts == 2 + 1 + MAX_FRUITLESS_STARTS


def test_progress_allows_any_number_of_starts(
    job: PlayedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start finishes a row, many more times than starts in vain are allowed."""
    rows = MAX_FRUITLESS_STARTS + 4
    many = add_job(job.store, job.storage, [Window([[row] for row in range(rows)])])
    job.store.fail_job(job.id, "x", "only the other job has work")
    real = WorkerProcess.start

    def start(worker: WorkerProcess) -> None:
        if (lease := many.store.claim_chunk("w", "the-model")) is not None:
            many.finish(lease)
        real(worker)

    monkeypatch.setattr(WorkerProcess, "start", start)
    from jobs import finalize

    def drive_at_the_end() -> None:
        finalize.drive(many.store, many.storage, "test")

    real_again = WorkerProcess.start_again

    def start_again(worker: WorkerProcess, progressed: bool) -> bool:
        drive_at_the_end()
        return real_again(worker, progressed)

    monkeypatch.setattr(WorkerProcess, "start_again", start_again)

    ended = supervise(many, KILL, tmp_path)

    assert ended.state is JobState.COMPLETED
    assert ended.counts == Counts(rows, 0, 0, 0, 4 * rows, 2 * rows, 3 * rows)


def test_a_worker_that_leaves_early_is_told(
    job: PlayedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        supervise(job, "print('bye')", tmp_path)

    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert "The worker has left:\n  bye\n" in said
    assert job.store.job(job.id).state is JobState.QUEUED


def test_a_job_that_another_worker_ended_is_over(job: PlayedJob, tmp_path: Path) -> None:
    job.store.request_cancel(job.id)
    from jobs import finalize

    finalize.drive(job.store, job.storage, "other")

    assert supervise(job, "print('bye')", tmp_path).state is JobState.CANCELLED


def test_a_worker_that_ignores_signals_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.worker_process.CLOSING_SECONDS", 0.3)
    program = (
        "import signal, time\n"
        "for number in (signal.SIGTERM, signal.SIGINT):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    worker = WorkerProcess([sys.executable, "-c", program], {}, tmp_path / "log")
    worker.start()
    while "ready" not in worker.tail():
        assert worker.returncode is None

    worker.close()

    assert worker.returncode == -9


def test_a_worker_that_is_busy_misses_no_signal(tmp_path: Path) -> None:
    """Of one that comes again before it was seen, it would see one."""
    program = (
        "import signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})\n"
        "print('ready', flush=True)\n"
        "for _ in range(1000):\n"
        "    if len(signal.sigpending()) == 2:\n"
        "        break\n"
        "    time.sleep(0.01)\n"
        "raise SystemExit(10 + len(signal.sigpending()))\n"
    )
    worker = WorkerProcess([sys.executable, "-c", program], {}, tmp_path / "log")
    worker.start()
    while "ready" not in worker.tail():
        assert worker.returncode is None

    for _ in range(2):
        worker.terminate()
    while worker.returncode is None:
        time.sleep(0.01)

    assert worker.returncode == 12
