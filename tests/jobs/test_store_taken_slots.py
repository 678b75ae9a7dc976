"""A job of whose model workers live, and all of them are busy with other jobs."""

from __future__ import annotations

import pytest

from jobs.cli.shapes import progress_json
from jobs.records import TakenSlots, WorkerStatus
from jobs.storage import Storage
from jobs.store import Store
from tests.support.job_store import StoreUnderTest

pytestmark = pytest.mark.quick

MODEL = "the/model"
READY = WorkerStatus("ready")


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def worker(store: Store, number: int, slots: int = 2, chunks: int = 0, model: str = MODEL) -> str:
    """A worker that has claimed so many chunks."""
    id = f"host:{number}:a"
    store.register_worker(id, model, slots, "0.1.0", READY)
    for _ in range(chunks):
        assert store.claim_chunk(id, model) is not None
    return id


def test_jobs_that_take_all_slots_are_named(back: StoreUnderTest, store: Store) -> None:
    long = back.add((1,) * 3, model=MODEL)
    worker(store, 1, chunks=2)
    waits = back.add((1,), model=MODEL)
    assert store.progress(waits.id).taken == TakenSlots(1, (long.id,))
    assert store.progress(long.id).taken is None  # which is worked on

    # A worker with a free slot is about to take a chunk, and one of another model never will.
    worker(store, 2, model="other")
    assert store.progress(waits.id).taken == TakenSlots(1, (long.id,))
    second = worker(store, 3, slots=1)
    assert store.progress(waits.id).taken is None
    lease = store.claim_chunk(second, MODEL)
    assert lease is not None
    assert lease.job_id == waits.id  # as it has fewer running chunks
    store.release_chunk(lease)
    assert store.progress(waits.id).taken is None


def test_two_workers_and_two_jobs(back: StoreUnderTest, store: Store) -> None:
    first, second = (back.add((1,) * 3, model=MODEL) for _ in range(2))
    worker(store, 1, chunks=2)
    worker(store, 2, slots=1, chunks=1)
    waits = back.add((1,), model=MODEL)
    assert store.progress(waits.id).taken == TakenSlots(2, tuple(sorted((first.id, second.id))))


def test_one_that_drains_counts_for_nothing(back: StoreUnderTest, store: Store) -> None:
    long = back.add((1,) * 3, model=MODEL)
    leaving = worker(store, 1, slots=3)
    worker(store, 2, slots=1, chunks=1)
    waits = back.add((1,), model=MODEL)
    assert store.progress(waits.id).taken is None
    store.report_worker(leaving, WorkerStatus("draining"))
    assert store.progress(waits.id).taken == TakenSlots(1, (long.id,))


def test_a_job_that_waits_for_more_than_a_slot(
    back: StoreUnderTest, store: Store, tmp_path: object
) -> None:
    def waits_for() -> object:
        return progress_json(store.progress(waits.id), Storage(str(tmp_path)))["waiting_for"]

    long = back.add((1,) * 3, model=MODEL)
    waits = back.add((1,), model=MODEL)
    store.pause(waits.id)
    worker(store, 1, chunks=2)
    assert (store.progress(waits.id).taken, waits_for()) == (None, None)
    store.resume(waits.id)
    assert waits_for() == (
        f"a free slot: 1 worker is busy with {long.id}; "
        "a job of higher --priority gets the next one first"
    )
    store.wait_for(waits.id, "room in the storage")
    assert waits_for() == "room in the storage"
    store.request_cancel(waits.id)
    assert (store.progress(waits.id).taken, waits_for()) == (None, None)
