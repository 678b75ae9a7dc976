"""`pagemill beat`: what it does while no worker lives, and how it comes and goes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text, update

from jobs.beat import Beat
from jobs.database import Database
from jobs.leaving import Leaving
from jobs.records import WorkerStatus
from jobs.settings import Settings
from jobs.shown_urls import shown_webhook
from jobs.states import ChunkState, JobState
from jobs.storage import Storage
from jobs.store import Store
from jobs.tables import workers
from tests.support.deployment import Deployment, wait_for
from tests.support.job_store import StoreUnderTest
from tests.support.played_evaluation import ROWS, Answering
from tests.support.played_job import MODEL, PlayedJob, Window, add_job
from tests.support.postgres import create_database, drop_database, nobody_let_in
from tests.support.receiver import receiving
from tests.support.schedules import make_due

WINDOWS = [Window([[2, 0], [3]], rejected=[1]), Window([[5, 4]])]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = Deployment(tmp_path / "home")
    made.env |= {"PAGEMILL_LEASE_SECONDS": "1", "PAGEMILL_SWEEP_SECONDS": "0.2"}
    return made


@pytest.fixture
def store(deployment: Deployment) -> Iterator[Store]:
    database = Database(deployment.settings.database_url)
    yield Store(database, lease_seconds=1)
    database.close()


@pytest.fixture
def storage(deployment: Deployment) -> Storage:
    return Storage(deployment.settings.storage_url)


class RunningBeat:
    def __init__(self, deployment: Deployment, *arguments: str, **env: str) -> None:
        self.log = deployment.home / f"beat-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jobs", "beat", *arguments],
                env=deployment.env | env, cwd=deployment.home, stdout=log, stderr=log,
            )  # fmt: skip

    def logged(self) -> str:
        return self.log.read_text()

    def until_logged(self, text: str) -> None:
        wait_for(f"{text!r} in the log", lambda: text in self.logged(), timeout=60)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit status, at once after a signal."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def beating(deployment: Deployment, *arguments: str, **env: str) -> Iterator[RunningBeat]:
    beat = RunningBeat(deployment, *arguments, **env)
    try:
        yield beat
    finally:
        beat.process.kill()
        beat.process.wait()


def ended(job: PlayedJob) -> Callable[[], bool]:
    return lambda: job.store.job(job.id).state.terminal


def test_jobs_end_without_a_worker(deployment, store, storage):
    """Complete, cancelled and overdue ones; and a chunk whose worker died is queued again."""
    complete, cancelled, orphaned = (add_job(store, storage, WINDOWS) for _ in range(3))
    for _ in range(3):
        complete.finish(complete.claim())
    assert [c.state for c in store.chunks(complete.id)] == [ChunkState.DONE] * 3
    lease = cancelled.claim("dead worker")
    assert lease.job_id == cancelled.id
    store.request_cancel(cancelled.id)
    lost = next(lease for _ in range(9) if (lease := cancelled.claim("lost")).job_id == orphaned.id)
    overdue = deployment.submit([{"prompt": "x"}], Path("/m"), "--deadline", "1s")

    with beating(deployment) as beat:
        wait_for("the complete job", ended(complete), timeout=60)
        wait_for("the cancelled job", ended(cancelled), timeout=60)
        wait_for("the overdue job", lambda: store.job(overdue).state.terminal, timeout=60)
        wait_for(
            "the lost chunk",
            lambda: all(c.state is ChunkState.QUEUED for c in store.chunks(orphaned.id)),
            timeout=60,
        )
        assert beat.end() == 0
    assert store.job(complete.id).state is JobState.COMPLETED
    assert [row["row_index"] for row in complete.published()] == list(range(6))
    assert store.job(cancelled.id).state is JobState.CANCELLED
    assert len(cancelled.published()) == 6
    assert store.job(overdue).state is JobState.EXPIRED
    assert {c.lease_epoch for c in store.chunks(orphaned.id) if c.id == lost.chunk_id} == {1}
    assert "queued again" in beat.logged()
    assert "Error" not in beat.logged()


def test_ends_are_told_without_a_worker(deployment, store, storage):
    """At once where the beat itself finishes the job, and again until they are taken."""
    with receiving() as receiver:
        receiver.answers = [500]
        secret = {"PAGEMILL_WEBHOOK_SECRET": "a-secret-that-nobody-sees"}
        with beating(deployment, **secret) as beat:
            beat.until_logged("looking after the jobs")
            job = add_job(store, storage, WINDOWS, notify_urls=(f"{receiver.url}/hidden",))
            job.finish_all()
            beat.until_logged("HTTP 500; again in")
            (told,) = store.notifications(job.id)
            assert told.state == "pending"
            store.send_again(told.id)  # nobody shall wait for five seconds
            wait_for("the second", lambda: len(receiver.requests) == 2, timeout=60)
            to = shown_webhook(receiver.url)
            beat.until_logged(f"job.completed of {job.id}:v1 to {to}: taken")
            assert beat.end() == 0
    for request in receiver.requests:
        assert request.headers["Pagemill-Delivery"] == told.id
        assert re.fullmatch(r"t=\d+,v1=[0-9a-f]{64}", request.headers["Pagemill-Signature"])
    assert "hidden" not in beat.logged()
    assert "nobody-sees" not in beat.logged()


def test_two_beats_do_no_harm(deployment, store, storage):
    """Together they finish each job once, and nothing goes wrong in either."""
    # No lease of theirs runs out, however busy the machine: who takes it over warns of that.
    deployment.env["PAGEMILL_LEASE_SECONDS"] = "600"
    played = [add_job(store, storage, WINDOWS) for _ in range(12)]
    with beating(deployment) as one, beating(deployment) as two:
        for beat in (one, two):
            beat.until_logged("looking after the jobs")
        played[0].finish_all()
        for job in played:
            wait_for("the end", ended(job), timeout=60)
        assert [one.end(), two.end()] == [0, 0]
    logs = [one.logged(), two.logged()]
    for job in played:
        assert store.job(job.id).state is JobState.COMPLETED
        assert [row["row_index"] for row in job.published()] == list(range(6))
        assert sum(log.count(f"job {job.id}: version 1 is published") for log in logs) == 1
    for log in logs:
        assert "ERROR" not in log
        assert "WARNING" not in log


def test_a_schedule_is_evaluated(deployment, store, storage):
    """From its time to its verdict, with a played worker for the answers."""
    rows = deployment.home / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    options = ("--model", MODEL, "--scorer", "exact", "--gate", "exact>=0.9", "--cron", "0 0 1 1 *")
    deployment.cli("schedule", "add", "nightly", str(rows), *options)
    database = Database(deployment.settings.database_url)
    make_due(database, store.schedule("nightly"), 5)
    with beating(deployment) as beat:
        wait_for("the job", lambda: bool(store.list_jobs()), timeout=120)
        (job,) = store.list_jobs()
        Answering(store, storage, job.id).finish_all()
        (evaluation,) = store.list_evaluations("nightly")
        over = lambda: store.evaluation(evaluation.id).finished_at is not None  # noqa: E731
        wait_for("the verdict", over, timeout=120)
        assert beat.end() == 0
    found = store.evaluation(evaluation.id)
    assert (found.trigger, found.verdict, found.job_id) == ("cron", "passed", job.id)
    assert found.due_at is not None
    assert "the evaluation" in beat.logged()
    database.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_at_once(deployment, number):
    """Even though the next round would be an hour away."""
    with beating(deployment, PAGEMILL_SWEEP_SECONDS="3600") as beat:
        beat.until_logged("looking after the jobs")
        assert beat.end(number) == 0
        assert "Traceback" not in beat.logged()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGHUP])
def test_two_signals_at_once_end_it_too(deployment: Deployment, second: signal.Signals) -> None:
    """As a service manager sends them."""
    with beating(deployment, PAGEMILL_SWEEP_SECONDS="3600") as beat:
        beat.until_logged("looking after the jobs")
        time.sleep(0.5)  # it waits for the next round
        for number in (signal.SIGSTOP, signal.SIGTERM, second):
            beat.process.send_signal(number)
        assert beat.end(signal.SIGCONT) == 0
        assert "Traceback" not in beat.logged()


def test_a_signal_ends_it_while_the_database_does_not_answer(
    deployment: Deployment, postgresql_back: StoreUnderTest
) -> None:
    """Each of its threads waits for a statement, and is not waited for."""
    database = postgresql_back.database
    deployment.env["PAGEMILL_DATABASE_URL"] = database.url.render_as_string(hide_password=False)
    with beating(deployment) as beat:
        beat.until_logged("looking after the jobs")
        with database.begin() as connection:
            connection.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
            time.sleep(1)
            assert beat.end() == 0
    assert "Error" not in beat.logged()


def test_a_database_that_is_away_is_waited_for(deployment):
    """PostgreSQL lets nobody in for a while, and cuts who is in; then it does its work again."""
    url = create_database()
    try:
        deployment.env["PAGEMILL_DATABASE_URL"] = url
        deployment.cli("db", "upgrade")
        health = deployment.home / "health"
        with beating(deployment, "--health-file", str(health)) as beat:
            wait_for("a round", health.exists, timeout=60)
            with nobody_let_in(url):
                beat.until_logged("beat: DatabaseUnavailable: ")
                beat.until_logged("finisher: DatabaseUnavailable: ")
                touched = health.stat().st_mtime_ns
                time.sleep(0.5)
                assert health.stat().st_mtime_ns == touched
            job = deployment.submit([{"prompt": "x"}], Path("/m"), "--deadline", "1s")
            wait_for("a job's end", lambda: deployment.status(job)["state"] == "expired", 60)
            # Of the round that ended the job, too, it tells only at its end.
            wait_for("a good round", lambda: health.stat().st_mtime_ns > touched, timeout=60)
            assert beat.end() == 0
    finally:
        drop_database(url)


def test_a_database_that_was_never_there_is_told_at_once(deployment):
    deployment.env["PAGEMILL_DATABASE_URL"] = f"sqlite:///{deployment.home}/other.db"
    done = deployment.cli("beat", expect=69)
    assert "there is no database" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_log_can_be_json(deployment):
    with beating(deployment, PAGEMILL_LOG_FORMAT="json", PAGEMILL_LOG_LEVEL="debug") as beat:
        beat.until_logged("looking after the jobs")
        beat.end()
    for line in beat.logged().splitlines():
        record = json.loads(line)
        assert record["process"] == "beat"
        assert record["pid"] == beat.process.pid
        assert {"ts", "level", "logger", "message"} <= set(record)


def test_the_health_file_tells(deployment):
    health = deployment.home / "health"

    def check(code: int) -> str:
        done = deployment.cli("beat", "--health-file", str(health), "--check", expect=code)
        return done.stdout + done.stderr

    assert "no round" in check(1)
    with beating(deployment, "--health-file", str(health)) as beat:
        wait_for("a round", health.exists, timeout=60)
        assert "went well" in check(0)
        beat.end()
    long_ago = time.time() - 3 * 0.2 - 31
    os.utime(health, (long_ago, long_ago))
    said = re.search(r"was (\d+) s ago", check(1))
    assert said is not None
    assert 31 <= int(said[1]) < 600


def test_a_health_file_that_cannot_be_is_refused(deployment):
    assert "--health-file" in deployment.cli("beat", "--check", expect=64).stderr
    for more in ((), ("--check",)):
        done = deployment.cli("beat", "--health-file", "/no/such/folder/x", *more, expect=64)
        assert "no such folder" in done.stderr


@pytest.mark.quick
def test_workers_that_left_long_ago_are_forgotten(deployment, store, storage):
    status = WorkerStatus(state="ready")
    for name in ("here:1:aa", "gone:2:bb"):
        store.register_worker(name, "m", 4, "0.1.0", status)
    database = Database(deployment.settings.database_url)
    with database.begin() as connection:
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        gone = workers.c.id == "gone:2:bb"
        connection.execute(update(workers).where(gone).values(seen_at=long_ago))
    database.close()
    Beat(Settings.from_env(deployment.env), store, storage, Leaving()).keep_house()
    assert [worker.id for worker in store.workers(all=True)] == ["here:1:aa"]
