"""A job of whose model no worker lives: the view and the commands say how the last one ended."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from jobs.cli.shapes import progress_json
from jobs.records import WorkerStatus
from jobs.sqltypes import database_now
from jobs.storage import Storage
from jobs.store import Store
from jobs.tables import workers
from tests.support.job_store import StoreUnderTest

pytestmark = pytest.mark.quick

MODEL = "the/model"
BROKEN = "model.safetensors is cut off; fetch it again"


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


@pytest.fixture
def waits(back: StoreUnderTest, store: Store, tmp_path: Any) -> Any:
    """What a job waits for, as the view has it; the JSON of `status` must have the same."""
    job = back.add((1, 1), model=MODEL)

    def ask() -> str | None:
        (row,) = back.view("job_progress", job.id)
        found: str | None = row["waiting_for"]
        assert progress_json(store.progress(job.id), Storage(str(tmp_path)))["waiting_for"] == found
        return found

    ask.job = job  # type: ignore[attr-defined]
    return ask


def worker(
    back: StoreUnderTest, number: int, status: WorkerStatus, model: str = MODEL, age: float = 0.0
) -> str:
    """A worker seen so many seconds ago; returns the time as sentences have it."""
    id = f"host:{number}:a"
    back.store.register_worker(id, model, 4, "0.1.0", WorkerStatus("starting"))
    back.store.report_worker(id, status)
    with back.database.begin() as connection:
        connection.execute(
            update(workers).where(workers.c.id == id).values(seen_at=database_now(-age))
        )
    (found,) = (w for w in back.store.workers(all=True) if w.id == id)
    return f"{found.seen_at:%Y-%m-%d %H:%M:%S} UTC"


def test_where_no_worker_ever_was(waits: Any) -> None:
    assert waits() == f"a worker of {MODEL}"


def test_the_last_one_seen_counts_and_its_words_are_told(back: StoreUnderTest, waits: Any) -> None:
    worker(back, 1, WorkerStatus("stopped"), age=500)
    worker(back, 2, WorkerStatus("failed", "of another model"), model="other")
    at = worker(back, 3, WorkerStatus("failed", BROKEN), age=400)
    assert waits() == f"a worker of {MODEL}; the last one failed at {at}: {BROKEN}"

    at = worker(back, 4, WorkerStatus("ready"), age=300)
    assert waits() == f"a worker of {MODEL}; the last one was lost after {at}"

    at = worker(back, 5, WorkerStatus("stopped"), age=200)
    assert waits() == f"a worker of {MODEL}; the last one left at {at}"

    at = worker(back, 6, WorkerStatus("failed"))
    assert waits() == f"a worker of {MODEL}; the last one failed at {at}: it did not say why"


@pytest.mark.parametrize("state", ["starting", "ready", "draining"])
def test_one_that_lives_is_enough(back: StoreUnderTest, waits: Any, state: str) -> None:
    worker(back, 1, WorkerStatus(state))
    worker(back, 2, WorkerStatus("failed", BROKEN))
    assert waits() is None


def test_a_job_that_has_begun_waits_as_well(back: StoreUnderTest, store: Store, waits: Any) -> None:
    assert store.claim_chunk("w", MODEL) is not None
    assert waits() == f"a worker of {MODEL}"


def test_what_the_job_was_told_to_wait_for_goes_first(store: Store, waits: Any) -> None:
    store.wait_for(waits.job.id, "room in the storage")
    assert waits() == "room in the storage"


def test_a_job_that_is_paused_or_has_ended_waits_for_no_worker(
    back: StoreUnderTest, store: Store, waits: Any
) -> None:
    store.pause(waits.job.id)
    assert waits() is None
    store.resume(waits.job.id)
    assert waits() is not None
    store.request_cancel(waits.job.id)
    assert waits() is None
