"""A worker on a real store, with an engine that answers only when the test says so."""

from __future__ import annotations

import os
import threading
import time

import pytest
from sqlalchemy import select

import jobs
from engine.messages import EngineStats, Ready
from engine.request import FinishReason, RequestOutput
from jobs.database import Database, upgrade
from jobs.errors import DatabaseError, OutputError
from jobs.settings import Settings
from jobs.states import ChunkState, JobState
from jobs.storage import Storage
from jobs.store import Store
from jobs.submission import Submission, prepare
from jobs.tables import row_errors
from tests.support.deployment import wait_for
from tests.support.tiny_model import byte_tokenizer
from worker import attempt, runtime
from worker.errors import ModelUnavailable
from worker.options import WorkerOptions
from worker.runtime import Worker


class HeldBridge:
    """An engine that keeps its requests until `answer` is called."""

    suspects = 0

    def __init__(self, config, on_failure, *, meter, **options):
        self.meter = meter
        self.on_failure = on_failure
        self.waiting = {}
        self.submitted = threading.Event()
        self.folder = config["model"]
        self.refusal = None

    def start(self, on_located):
        if self.refusal is not None:
            raise self.refusal
        on_located(self.folder)
        return Ready(self.folder, "rev", "float32", "float16", "cpu", 512, 16, 64, 0.1)

    def submit(self, requests, sink, *, apart=None):
        if apart is not None:
            apart()
        self.waiting.update((r.request_id, (r, sink)) for r in requests)
        self.submitted.set()

    def abort(self, request_ids):
        for request_id in request_ids:
            self.waiting.pop(request_id, None)

    def running(self):
        return {}

    def close(self):
        assert not self.waiting, "requests were left in the engine"

    def answer(self, count=None, error=None):
        for request_id in list(self.waiting)[:count]:
            request, sink = self.waiting.pop(request_id)
            n = len(request.token_ids)
            reason = FinishReason.STOP if error is None else FinishReason.ERROR
            sink(RequestOutput(request_id, (1,), "ok", reason, n, 0, 1, error, error))


class Place:
    """A job of five rows in one chunk, and workers for it."""

    def __init__(self, home, monkeypatch):
        monkeypatch.setattr(runtime, "EngineBridge", HeldBridge)
        self.settings = Settings.from_env(
            {
                "PAGEMILL_HOME": str(home),
                "PAGEMILL_SPOOL_SECONDS": "3600",
                "PAGEMILL_HEARTBEAT_SECONDS": "0.05",
            }
        )
        self.model = str(home / "model")
        byte_tokenizer().save_pretrained(self.model)
        upgrade(self.settings.database_url)
        self.database = Database(self.settings.database_url)
        self.store = Store(self.database, lease_seconds=60)
        self.storage = Storage(self.settings.storage_url)
        path = home / "in.jsonl"
        path.write_text('{"prompt": "x"}\n' * 5)
        self.job = self.store.insert_job(
            prepare(Submission(input=str(path), model=self.model), self.storage)
        ).id
        self.workers = []

    def new_worker(self, **options):
        """A worker that was not started."""
        options = WorkerOptions(self.settings, self.model, {"model": self.model}, **options)
        made = Worker(options, self.store, self.storage)
        self.workers.append(made)
        return made

    def worker(self, **options):
        made = self.new_worker(**options)
        made.start()
        return made

    def row(self, worker):
        """What the table of workers says of one."""
        return next((w for w in self.store.workers(all=True) if w.id == worker.id), None)

    def chunk(self):
        (chunk,) = self.store.chunks(self.job)
        return chunk

    def begin(self, worker):
        """Run the chunk in a thread; returns once its rows are in the engine."""
        thread = threading.Thread(target=worker.run_chunk)
        thread.start()
        assert worker._bridge.submitted.wait(10)
        return thread


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path, monkeypatch)
    yield made
    for worker in made.workers:
        worker.close()
    made.database.close()


def test_a_chunk_is_answered_committed_and_its_job_published(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer()
    thread.join(10)
    job = place.store.job(place.job)
    assert job.state is JobState.COMPLETED
    assert job.counts.completed == 5
    assert worker.held == 0


def test_a_message_for_a_chunk_that_is_taken_does_nothing(place):
    worker, other = place.worker(), place.worker()
    thread = place.begin(worker)
    other.run_chunk()
    assert other.held == 0
    worker._bridge.answer()
    thread.join(10)


def test_a_draining_worker_claims_nothing(place):
    worker = place.worker()
    worker.draining.set()
    worker.run_chunk()
    assert place.chunk().state is ChunkState.QUEUED


def test_hand_back_keeps_what_is_finished(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    worker.hand_back()
    thread.join(10)
    assert place.chunk().state is ChunkState.QUEUED
    other = place.worker()
    thread = place.begin(other)
    assert len(other._bridge.waiting) == 3
    other._bridge.answer()
    thread.join(10)
    assert place.store.job(place.job).counts.completed == 5


def test_a_chunk_claimed_while_the_worker_hands_back_is_handed_back_too(place, monkeypatch):
    worker = place.worker()

    def read_then_signal(*args):
        worker.hand_back()  # the chunk is leased, but its run can't be seen yet
        return read(*args)

    read = attempt.read_chunk_input
    monkeypatch.setattr(attempt, "read_chunk_input", read_then_signal)
    worker.run_chunk()
    assert place.chunk().state is ChunkState.QUEUED


def test_a_cancelled_job_is_published_with_what_was_answered(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    place.store.request_cancel(place.job)
    thread.join(10)
    job = place.store.job(place.job)
    assert job.state is JobState.CANCELLED
    assert (job.counts.completed, job.counts.cancelled) == (2, 3)


def test_a_worker_whose_lease_was_taken_publishes_nothing(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    assert place.store.requeue_owned(worker.id) == 1
    thread.join(10)
    assert place.chunk().part is None
    spool = place.storage.job(place.job).path / "_spool"
    assert list(spool.rglob("*.arrow")) == []


def test_an_engine_that_cannot_be_had_ends_in_a_hand_back(place):
    from worker.errors import EngineLost

    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.on_failure(EngineLost("died again and again"))
    thread.join(10)
    assert worker.failure.exit_code == 4
    assert worker.draining.is_set()
    assert place.chunk().state is ChunkState.QUEUED


def test_a_chunk_that_fails_here_is_left_to_its_lease(place, monkeypatch, caplog):
    worker = place.worker()
    monkeypatch.setattr(attempt, "read_chunk_input", lambda *a: 1 / 0)
    worker.run_chunk()
    assert place.chunk().state is ChunkState.RUNNING  # no quick circle of claims
    assert worker.held == 0
    assert "its lease is left to run out" in caplog.text


def test_a_chunk_that_the_same_worker_claims_again_is_one_run(place):
    """After an outage longer than the lease, before the next heartbeat."""
    worker = place.worker()
    worker._heartbeat.stop()
    first = place.begin(worker)
    assert place.store.requeue_owned(worker.id) == 1
    worker._bridge.submitted.clear()
    second = place.begin(worker)
    first.join(10)
    assert not first.is_alive()
    assert worker.held == 1
    worker.hand_back()
    second.join(10)
    assert not second.is_alive()
    assert place.chunk().state is ChunkState.QUEUED


def test_a_damaged_copy_of_the_input_fails_the_job(place):
    (copy,) = (place.storage.job(place.job).path / "_input").glob("*.parquet")
    copy.write_bytes(copy.read_bytes()[:100])
    worker = place.worker()
    worker.run_chunk()
    job = place.store.job(place.job)
    assert job.state is JobState.FAILED
    assert job.error_code == "files_damaged"


def test_a_worker_that_lost_the_chunk_fails_no_job_over_its_files(place, monkeypatch, caplog):
    worker = place.worker()

    def lose_it(*arguments):
        assert place.store.requeue_owned(worker.id) == 1
        raise OutputError("the input is gone")

    monkeypatch.setattr(attempt, "read_chunk_input", lose_it)
    assert worker.run_chunk()
    assert place.store.job(place.job).state is JobState.IN_PROGRESS
    assert place.chunk().state is ChunkState.QUEUED
    assert worker.look().work.outcomes["fenced"] == 1
    assert [line["levelname"] for line in lines(caplog, "chunk_fenced")] == ["WARNING"]


def lines(caplog, event):
    """The log lines of one kind, each as its fields."""
    return [vars(r) for r in caplog.records if vars(r).get("event") == event]


def test_every_line_about_a_chunk_names_it_its_job_and_its_lease(place, caplog):
    caplog.set_level("INFO")
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    worker.hand_back()
    thread.join(10)
    other = place.worker()
    thread = place.begin(other)
    other._bridge.answer(1, error="nan_logits")
    other._bridge.answer()
    thread.join(10)

    about = [vars(r) for r in caplog.records if r.getMessage().startswith("chunk ")]
    assert [(line["event"], line["epoch"], line["worker_id"]) for line in about] == [
        ("chunk_leased", 1, worker.id),
        ("chunk_handed_back", 1, worker.id),
        ("chunk_leased", 2, other.id),
        ("rows_adopted", 2, other.id),
        ("chunk_done", 2, other.id),
    ]
    assert {(line["job_id"], line["chunk_id"]) for line in about} == {(place.job, place.chunk().id)}
    assert about[0]["rows"] == 5
    assert about[3]["rows"] == 2
    done = about[4]
    assert (done["rows"], done["errors"], done["completion_tokens"]) == (5, 1, 5)
    assert done["prompt_tokens"] == 5 * len("x")
    assert 0 < done["seconds"] < 60


def test_a_fenced_chunk_and_a_failed_one_are_lines_and_counts(place, monkeypatch, caplog):
    caplog.set_level("INFO")
    worker = place.worker()
    thread = place.begin(worker)
    assert place.store.requeue_owned(worker.id) == 1
    thread.join(10)
    assert [line["epoch"] for line in lines(caplog, "chunk_fenced")] == [1]
    monkeypatch.setattr(attempt, "read_chunk_input", lambda *a: 1 / 0)
    worker.run_chunk()
    (failed,) = lines(caplog, "chunk_failed")
    assert failed["epoch"] == 2
    assert failed["exc_info"][0] is ZeroDivisionError
    assert worker.look().work.outcomes == {"done": 0, "handed_back": 0, "fenced": 1, "failed": 1}


def test_progress_is_logged_while_there_are_chunks(place, caplog):
    caplog.set_level("INFO")
    worker = place.worker(progress_seconds=0.02)
    worker._bridge.meter.take(
        EngineStats(
            running=3, waiting=2, blocks_used=16, blocks_total=64, prompt_tokens=100,
            cached_tokens=75,
        )
    )  # fmt: skip
    time.sleep(0.2)
    assert lines(caplog, "progress") == []
    thread = place.begin(worker)
    worker._bridge.answer(2)
    line = wait_for("progress", lambda: [f for f in lines(caplog, "progress") if f["rows_done"]])[0]
    assert (line["rows_done"], line["rows_total"], line["chunks_held"]) == (2, 5, 1)
    assert (line["running"], line["waiting"], line["kv_blocks_used"]) == (3, 2, 16)
    assert line["job_ids"] == [place.job]
    assert line["prefix_cache_hit_ratio"] == 0.75
    text = "2 of 5 rows of 1 chunk; 0.0 tokens/s, 3 requests running, 2 waiting, KV blocks 25% used"
    assert text in caplog.text
    worker._bridge.answer()
    thread.join(10)


def test_the_errors_of_a_chunk_are_committed_with_it(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2, error="nan_logits")
    worker._bridge.answer()
    thread.join(10)
    with place.database.read() as connection:
        (found,) = connection.execute(select(row_errors)).all()
    assert (found.job_id, found.code, found.rows) == (place.job, "nan_logits", 2)
    assert (found.row_index, found.line, found.message) == (0, 1, "nan_logits")


def test_its_row_is_there_before_its_model_and_goes_through_its_life(place):
    worker = place.new_worker()
    loaded = threading.Event()
    load = worker._bridge.start
    worker._bridge.start = lambda on_located: (loaded.wait(10), load(on_located))[1]
    thread = threading.Thread(target=worker.start)
    thread.start()
    row = wait_for("the row", lambda: place.row(worker))
    assert (row.status.state, row.status.device, row.alive) == ("starting", None, True)
    assert (row.model, row.concurrency, row.pid) == (place.model, 4, os.getpid())
    assert row.software == f"pagemill {jobs.__version__}"
    loaded.set()
    thread.join(10)
    row = wait_for("ready", lambda: (r := place.row(worker)).status.state == "ready" and r)
    assert (row.status.device, row.status.dtype) == ("cpu", "float32")
    worker.draining.set()
    wait_for("draining", lambda: place.row(worker).status.state == "draining")
    worker.close()
    place.workers.remove(worker)
    row = place.row(worker)
    assert (row.status.state, row.alive) == ("stopped", False)


def test_its_row_has_its_numbers(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(1, error="nan_logits")
    worker._bridge.answer(2)
    worker._bridge.meter.take(EngineStats(running=2, generated_tokens=77, blocks_total=64))

    def numbers():
        s = place.row(worker).status
        return s.chunks_held, s.rows_completed, s.rows_failed, s.running, s.generated_tokens

    wait_for("its numbers", lambda: numbers() == (1, 2, 1, 2, 77))
    assert place.row(worker).status.tokens_per_second > 0
    worker._bridge.answer()
    thread.join(10)
    wait_for("the end of its chunk", lambda: numbers()[:2] == (0, 4))


def test_a_model_that_cannot_be_served_is_told_in_the_row(place):
    worker = place.new_worker()
    worker._bridge.refusal = ModelUnavailable("there is no such model")
    with pytest.raises(ModelUnavailable) as refused:
        worker.start()
    worker.failure = refused.value
    worker.close()
    place.workers.remove(worker)
    status = place.row(worker).status
    assert (status.state, status.message) == ("failed", "there is no such model")


def test_a_database_that_is_away_ends_no_worker(place, monkeypatch, caplog):
    def away(*arguments, **more):
        raise DatabaseError("the database is away")

    worker = place.worker()
    thread = place.begin(worker)
    with monkeypatch.context() as patch:
        for name in ("renew", "report_worker", "claim_chunk"):
            patch.setattr(Store, name, away)
        wait_for("failures", lambda: worker.look().heartbeat_failures >= 3)
        assert worker.look().heartbeat_age > 0.1
        assert worker.look().trouble(lease_seconds=0.1) is not None
        worker.run_chunk()
    assert [f["levelname"] for f in lines(caplog, "database_away")] == ["WARNING"]
    wait_for("health", lambda: worker.look().trouble(lease_seconds=0.1) is None)
    worker._bridge.answer()
    thread.join(10)
    assert place.store.job(place.job).state is JobState.COMPLETED


def refuse_commits(monkeypatch, times):
    """Let so many commits fail; returns those that are left."""
    monkeypatch.setattr(attempt, "COMMIT_AGAIN_SECONDS", 0.01)
    commit = Store.commit_chunk
    left = [DatabaseError("the database is away")] * times

    def commit_or_not(*arguments):
        if left:
            raise left.pop()
        return commit(*arguments)

    monkeypatch.setattr(Store, "commit_chunk", commit_or_not)
    return left


def test_a_commit_is_tried_again_while_the_database_is_away(place, monkeypatch, caplog):
    worker = place.worker()
    refuse_commits(monkeypatch, 3)
    thread = place.begin(worker)
    worker._bridge.answer()
    thread.join(10)
    assert place.store.job(place.job).state is JobState.COMPLETED
    assert len(lines(caplog, "commit_delayed")) == 3
    assert worker.look().work.outcomes["done"] == 1


def test_a_commit_is_given_up_after_a_lease_or_with_the_second_signal(place, monkeypatch, caplog):
    worker = place.worker()
    left = refuse_commits(monkeypatch, 1_000_000)
    thread = place.begin(worker)
    worker._bridge.answer()
    wait_for("tries", lambda: len(left) < 999_990)
    worker.hand_back()
    thread.join(10)
    assert not thread.is_alive()
    assert len(lines(caplog, "chunk_failed")) == 1
    other = place.worker()
    monkeypatch.setattr(Store, "lease_seconds", 0.1)
    assert place.store.requeue_owned(worker.id) == 1
    thread = place.begin(other)
    other._bridge.answer()
    thread.join(10)
    assert not thread.is_alive()
    assert len(lines(caplog, "chunk_failed")) == 2
