"""A worker on a real store, with an engine that answers only when the test says so."""

from __future__ import annotations

import threading

import pytest

from engine.messages import Ready
from engine.request import FinishReason, RequestOutput
from jobs.database import Database, upgrade
from jobs.settings import Settings
from jobs.states import ChunkState, JobState
from jobs.storage import Storage
from jobs.store import Store
from jobs.submission import Submission, prepare
from tests.support.tiny_model import byte_tokenizer
from worker import runtime
from worker.options import WorkerOptions
from worker.runtime import Worker


class HeldBridge:
    """An engine that keeps its requests until `answer` is called."""

    def __init__(self, config, on_failure):
        self.on_failure = on_failure
        self.waiting = {}
        self.submitted = threading.Event()
        self.folder = config["model"]

    def start(self):
        return Ready(self.folder, "rev", "float32", "cpu", 512, 16, 64, 0.1)

    def submit(self, requests, sink):
        self.waiting.update((r.request_id, (r, sink)) for r in requests)
        self.submitted.set()

    def abort(self, request_ids):
        for request_id in request_ids:
            self.waiting.pop(request_id, None)

    def running(self):
        return {}

    def close(self):
        assert not self.waiting, "requests were left in the engine"

    def answer(self, count=None):
        for request_id in list(self.waiting)[:count]:
            request, sink = self.waiting.pop(request_id)
            n = len(request.token_ids)
            sink(RequestOutput(request_id, (1,), "ok", FinishReason.STOP, n, 0, 1))


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

    def worker(self):
        options = WorkerOptions(self.settings, self.model, {"model": self.model})
        made = Worker(options, self.store, self.storage)
        made.start()
        self.workers.append(made)
        return made

    def chunk(self):
        (chunk,) = self.store.chunks(self.job)
        return chunk

    def begin(self, worker):
        """Run the chunk in a thread; returns once its rows are in the engine."""
        thread = threading.Thread(target=worker.run_chunk, args=(self.chunk().id,))
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
    other.run_chunk(place.chunk().id)
    assert other.held == 0
    worker._bridge.answer()
    thread.join(10)


def test_a_draining_worker_claims_nothing(place):
    worker = place.worker()
    worker.draining.set()
    worker.run_chunk(place.chunk().id)
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

    read = runtime.read_chunk_input
    monkeypatch.setattr(runtime, "read_chunk_input", read_then_signal)
    worker.run_chunk(place.chunk().id)
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
    monkeypatch.setattr(runtime, "read_chunk_input", lambda *a: 1 / 0)
    worker.run_chunk(place.chunk().id)
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
    worker.run_chunk(place.chunk().id)
    job = place.store.job(place.job)
    assert job.state is JobState.FAILED
    assert job.error_code == "files_damaged"
