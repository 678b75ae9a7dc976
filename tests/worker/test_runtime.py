"""The life of a worker, and what it says of itself, with an engine that is held."""

from __future__ import annotations

import os
import threading
import time

import pytest

import jobs
from engine.messages import EngineStats
from jobs.errors import DatabaseError
from jobs.states import ChunkState, JobState
from jobs.store import Store
from tests.support.deployment import wait_for
from tests.support.held_engine import lines
from worker.errors import ModelUnavailable


def test_a_draining_worker_claims_nothing(place):
    worker = place.worker()
    worker.draining.set()
    worker.run_chunk()
    assert place.chunk().state is ChunkState.QUEUED


def test_an_engine_that_cannot_be_had_ends_in_a_hand_back(place):
    from worker.errors import EngineLost

    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.on_failure(EngineLost("died again and again"))
    thread.join(60)
    assert worker.failure.exit_code == 4
    assert worker.draining.is_set()
    assert place.chunk().state is ChunkState.QUEUED


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
    thread.join(60)


def test_its_row_is_there_before_its_model_and_goes_through_its_life(place):
    worker = place.new_worker()
    loaded = threading.Event()
    load = worker._bridge.start
    worker._bridge.start = lambda on_located: (loaded.wait(60), load(on_located))[1]
    thread = threading.Thread(target=worker.start)
    thread.start()
    row = wait_for("the row", lambda: place.row(worker))
    assert (row.status.state, row.status.device, row.alive) == ("starting", None, True)
    assert (row.model, row.concurrency, row.pid) == (place.model, 4, os.getpid())
    assert row.software == jobs.__version__
    loaded.set()
    thread.join(60)
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
    thread.join(60)
    wait_for("the end of its chunk", lambda: numbers()[:2] == (0, 4))


def test_what_the_start_of_an_engine_is_at_is_told_in_the_row(place):
    worker = place.new_worker()
    worker._bridge.loading = "loading weights 60%"
    assert worker.look().status().message == "loading weights 60%"
    worker.start()
    again = "its engine died and another one starts: loading weights 60%"
    wait_for("its row", lambda: (row := place.row(worker)) and row.status.message == again)
    worker._bridge.loading = None
    wait_for("its row", lambda: place.row(worker).status.message is None)


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
    thread.join(60)
    assert place.store.job(place.job).state is JobState.COMPLETED
