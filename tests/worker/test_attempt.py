"""What becomes of a chunk in a worker, whatever comes between."""

from __future__ import annotations

import threading

from sqlalchemy import select

from jobs.errors import DatabaseError, OutputError
from jobs.states import ChunkState, JobState
from jobs.store import Store
from jobs.tables import row_errors
from tests.support.deployment import wait_for
from tests.support.held_engine import HeldBridge, lines
from worker import attempt, runtime


def test_a_chunk_is_answered_committed_and_its_job_published(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer()
    thread.join(60)
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
    thread.join(60)


def test_hand_back_keeps_what_is_finished(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    worker.hand_back()
    thread.join(60)
    assert place.chunk().state is ChunkState.QUEUED
    other = place.worker()
    thread = place.begin(other)
    assert len(other._bridge.waiting) == 3
    other._bridge.answer()
    thread.join(60)
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
    thread.join(60)
    job = place.store.job(place.job)
    assert job.state is JobState.CANCELLED
    assert (job.counts.completed, job.counts.cancelled) == (2, 3)


def test_a_worker_whose_lease_was_taken_publishes_nothing(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    assert place.store.requeue_owned(worker.id) == 1
    thread.join(60)
    assert place.chunk().part is None
    spool = place.storage.job(place.job).path / "_spool"
    assert list(spool.rglob("*.arrow")) == []


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
    first.join(60)
    assert not first.is_alive()
    assert worker.held == 1
    worker.hand_back()
    second.join(60)
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


def test_every_line_about_a_chunk_names_it_its_job_and_its_lease(place, caplog):
    caplog.set_level("INFO")
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2)
    worker.hand_back()
    thread.join(60)
    other = place.worker()
    thread = place.begin(other)
    other._bridge.answer(1, error="nan_logits")
    other._bridge.answer()
    thread.join(60)

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
    thread.join(60)
    assert [line["epoch"] for line in lines(caplog, "chunk_fenced")] == [1]
    monkeypatch.setattr(attempt, "read_chunk_input", lambda *a: 1 / 0)
    worker.run_chunk()
    (failed,) = lines(caplog, "chunk_failed")
    assert failed["epoch"] == 2
    assert failed["exc_info"][0] is ZeroDivisionError
    assert worker.look().work.outcomes == {"done": 0, "handed_back": 0, "fenced": 1, "failed": 1}


def test_the_errors_of_a_chunk_are_committed_with_it(place):
    worker = place.worker()
    thread = place.begin(worker)
    worker._bridge.answer(2, error="nan_logits")
    worker._bridge.answer()
    thread.join(60)
    with place.database.read() as connection:
        (found,) = connection.execute(select(row_errors)).all()
    assert (found.job_id, found.code, found.rows) == (place.job, "nan_logits", 2)
    assert (found.row_index, found.line, found.message) == (0, 1, "nan_logits")


def away(*_arguments):
    raise DatabaseError("the database is away")


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
    thread.join(60)
    assert place.store.job(place.job).state is JobState.COMPLETED
    assert len(lines(caplog, "commit_delayed")) == 3
    assert worker.look().work.outcomes["done"] == 1


def computed_again(place, monkeypatch):
    """How many rows the next worker computes; then the job is done."""
    monkeypatch.undo()
    monkeypatch.setattr(runtime, "EngineBridge", HeldBridge)
    worker = place.worker()
    thread = threading.Thread(target=worker.run_chunk)
    thread.start()
    wait_for("the rows", lambda: worker._bridge.submitted.is_set() or not thread.is_alive())
    rows = len(worker._bridge.waiting)
    worker._bridge.answer()
    thread.join(60)
    assert place.store.job(place.job).state is JobState.COMPLETED
    return rows


def test_a_commit_that_is_refused_costs_no_row_when_the_worker_has_to_leave(place, monkeypatch):
    worker = place.worker()
    left = refuse_commits(monkeypatch, 1_000_000)
    thread = place.begin(worker)
    worker._bridge.answer()
    wait_for("tries", lambda: len(left) < 999_990)
    worker.hand_back()
    thread.join(60)
    assert not thread.is_alive()
    assert place.chunk().state is ChunkState.QUEUED
    assert computed_again(place, monkeypatch) == 0


def test_nor_does_it_where_the_chunk_cannot_be_handed_back_either(place, monkeypatch, caplog):
    worker = place.worker()
    left = refuse_commits(monkeypatch, 1_000_000)
    monkeypatch.setattr(Store, "release_chunk", away)
    thread = place.begin(worker)
    worker._bridge.answer()
    wait_for("tries", lambda: len(left) < 999_990)
    worker.hand_back()
    thread.join(60)
    assert not thread.is_alive()
    assert len(lines(caplog, "chunk_failed")) == 1
    assert place.store.requeue_owned(worker.id) == 1
    assert computed_again(place, monkeypatch) == 0


def test_a_commit_is_given_up_after_a_lease_and_costs_no_row(place, monkeypatch, caplog):
    worker = place.worker()
    refuse_commits(monkeypatch, 1_000_000)
    monkeypatch.setattr(Store, "lease_seconds", 0.1)
    thread = place.begin(worker)
    worker._bridge.answer()
    thread.join(60)
    assert not thread.is_alive()
    assert len(lines(caplog, "chunk_failed")) == 1
    assert place.store.requeue_owned(worker.id) == 1
    assert computed_again(place, monkeypatch) == 0
