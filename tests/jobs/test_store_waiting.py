"""What a job waits for: the last word counts, and whatever gets on clears it."""

from __future__ import annotations

import pytest

from jobs.records import Counts
from jobs.store import Store
from tests.support.job_store import ROWS, StoreUnderTest

pytestmark = pytest.mark.quick

ROOM = "room in the storage: the disk is full"


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def waits(store: Store, job_id: str) -> str | None:
    return store.job(job_id).waiting_for


def test_the_last_word_counts_and_everyone_sees_it(back: StoreUnderTest, store: Store) -> None:
    job = back.add()
    assert waits(store, job.id) is None

    store.wait_for(job.id, "a worker")
    store.wait_for(job.id, ROOM)

    assert waits(store, job.id) == ROOM
    (seen,) = back.view("job_progress", job.id)
    assert seen["waiting_for"] == ROOM


def test_only_what_was_waited_for_is_over(back: StoreUnderTest, store: Store) -> None:
    job, other = back.add(), back.add()
    for each in (job, other):
        store.wait_for(each.id, ROOM)

    store.wait_no_more(job.id, "something else")
    assert waits(store, job.id) == ROOM

    store.wait_no_more(job.id, ROOM)
    assert (waits(store, job.id), waits(store, other.id)) == (None, ROOM)


def test_a_job_that_gets_on_waits_no_more(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 1))
    store.wait_for(job.id, ROOM)
    lease = store.claim_chunk("w", "m")  # the job is in progress from now on
    assert lease is not None
    assert waits(store, job.id) is None

    store.wait_for(job.id, ROOM)
    store.commit_chunk(lease, "p", Counts(completed=ROWS))
    assert waits(store, job.id) is None

    store.wait_for(job.id, ROOM)
    merge = store.claim_window(job.id, 0, "f")
    assert merge is not None
    assert waits(store, job.id) == ROOM
    store.finish_window(merge, "w0.parquet")
    assert waits(store, job.id) is None


@pytest.mark.parametrize("dies", [True, False])
def test_the_word_of_a_worker_that_leaves_leaves_with_it(
    back: StoreUnderTest, store: Store, dies: bool
) -> None:
    job = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.wait_for(job.id, ROOM)

    if dies:
        back.expire_leases()
        assert store.requeue_expired() == 1
    else:
        store.release_chunk(lease, Counts())

    assert waits(store, job.id) is None


def test_a_job_that_has_ended_waits_for_nothing(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    store.wait_for(job.id, ROOM)
    back.finalize(job.id, Counts(completed=ROWS))
    assert waits(store, job.id) is None

    store.wait_for(job.id, ROOM)
    assert waits(store, job.id) is None


def test_the_garbage_of_a_version_is_known_until_it_is_removed(
    back: StoreUnderTest, store: Store
) -> None:
    job, other = back.add((1,), model="one"), back.add((1,), model="other")
    assert store.garbage() == []
    for each in (job, other):
        back.complete(each.id)
    assert store.garbage() == [(job.id, 1), (other.id, 1)]

    store.forget_garbage(job.id, 2)
    store.forget_garbage(other.id, 1)

    assert store.garbage() == [(job.id, 1)]
