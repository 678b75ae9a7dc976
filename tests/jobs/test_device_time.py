"""How long devices computed a job: what workers tell stays, whatever becomes of them."""

from __future__ import annotations

import pytest

from jobs.records import ChunkLease, Counts, DeviceTime
from jobs.states import JobState
from jobs.store import Store
from tests.support.job_store import StoreUnderTest, new_plan

COUNTS = Counts(4, 0, 0, 0, 100, 60, 20)


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def claim(store: Store, worker: str = "w") -> ChunkLease:
    lease = store.claim_chunk(worker, "m")
    assert lease is not None
    return lease


def gpu(seconds: float) -> DeviceTime:
    return DeviceTime(seconds, seconds)


def of(back: StoreUnderTest, job_id: str) -> tuple[float, float]:
    """As the view has it, which must be as the store has it."""
    (row,) = back.view("job_progress", job_id)
    found = back.store.progress(job_id).device
    assert (row["device_seconds"], row["gpu_seconds"]) == pytest.approx(
        (found.seconds, found.gpu_seconds), abs=0.001
    )
    return found.seconds, found.gpu_seconds


def test_nothing_was_computed_at_first(back: StoreUnderTest) -> None:
    job = back.add((1,))
    assert of(back, job.id) == (0, 0)
    (row,) = back.view("job_progress", job.id)
    assert row["tokens_per_device_hour"] is None


def test_heartbeats_and_commits_tell_it(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    first, second = claim(store), claim(store)
    assert first.device == DeviceTime()
    store.renew("w", {first.chunk_id: (1, Counts(1))}, {first.chunk_id: gpu(1.5)})
    assert of(back, job.id) == (1.5, 1.5)
    store.renew("w", {first.chunk_id: (1, Counts(1))}, {first.chunk_id: gpu(2.5)})
    assert of(back, job.id) == (2.5, 2.5)
    store.commit_chunk(first, "p1", COUNTS, (), gpu(3.0))
    store.commit_chunk(second, "p2", COUNTS, (), DeviceTime(1.0, 0.0))
    assert of(back, job.id) == (4.0, 3.0)
    assert store.job(job.id).device == DeviceTime(4.0, 3.0)
    (row,) = back.view("job_progress", job.id)
    assert row["tokens_per_device_hour"] == 2 * (100 - 60 + 20) * 3600 / 4


def test_a_commit_that_is_made_twice_counts_once(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    lease = claim(store)
    for _ in range(2):
        assert store.commit_chunk(lease, "p", COUNTS, (), gpu(3.0))
    assert of(back, job.id) == (3.0, 3.0)


def test_who_says_nothing_of_it_changes_nothing(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    lease = claim(store)
    store.renew("w", {lease.chunk_id: (1, Counts(1))}, {lease.chunk_id: gpu(1.5)})
    store.renew("w", {lease.chunk_id: (1, Counts(2))})
    store.release_chunk(lease)
    assert of(back, job.id) == (1.5, 1.5)
    store.commit_chunk(claim(store), "p", COUNTS)
    assert of(back, job.id) == (1.5, 1.5)


def test_the_next_worker_goes_on_from_what_the_lost_one_told(
    back: StoreUnderTest, store: Store
) -> None:
    job = back.add((1,))
    lost = claim(store, "lost")
    store.renew("lost", {lost.chunk_id: (1, Counts(2))}, {lost.chunk_id: gpu(7.0)})
    back.expire_leases()
    store.requeue_expired()
    assert of(back, job.id) == (7.0, 7.0)
    lease = claim(store, "next")
    assert lease.device == gpu(7.0)
    # The lost one is back, and knows of nothing.
    store.renew("lost", {lost.chunk_id: (1, Counts(3))}, {lost.chunk_id: gpu(99.0)})
    assert not store.commit_chunk(lost, "p", COUNTS, (), gpu(99.0))
    assert of(back, job.id) == (7.0, 7.0)
    store.commit_chunk(lease, "p", COUNTS, (), lease.device + gpu(2.0))
    assert of(back, job.id) == (9.0, 9.0)


def test_a_chunk_that_is_handed_back_keeps_it(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    store.release_chunk(claim(store), Counts(1), gpu(2.0))
    assert of(back, job.id) == (2.0, 2.0)
    assert claim(store).device == gpu(2.0)


def test_the_end_of_a_job_keeps_that_of_chunks_that_were_stopped(
    back: StoreUnderTest, store: Store
) -> None:
    """One is done, one was handed back before, one is held, and one was never begun."""
    job = back.add((4,))
    done, handed_back, held = claim(store), claim(store), claim(store)
    store.commit_chunk(done, "p", COUNTS, (), gpu(1.0))
    store.release_chunk(handed_back, Counts(1), gpu(2.0))
    store.request_cancel(job.id)
    assert of(back, job.id) == (3.0, 3.0)
    store.release_chunk(held, Counts(2), gpu(4.0))
    assert of(back, job.id) == (7.0, 7.0)
    back.finalize(job.id, Counts(4, 0, 12))  # whose counts replace those of the job
    assert store.job(job.id).state is JobState.CANCELLED
    assert of(back, job.id) == (7.0, 7.0)


def test_a_job_that_fails_keeps_what_was_told(back: StoreUnderTest, store: Store) -> None:
    job = back.add((3,))
    done, running = claim(store), claim(store)
    store.commit_chunk(done, "p", COUNTS, (), gpu(1.0))
    store.renew("w", {running.chunk_id: (1, Counts(1))}, {running.chunk_id: gpu(5.0)})
    store.fail_job(job.id, "broken", "it broke")
    assert of(back, job.id) == (6.0, 6.0)
    assert not store.commit_chunk(running, "p", COUNTS, (), gpu(9.0))
    assert of(back, job.id) == (6.0, 6.0)


def test_a_retry_adds_to_it(back: StoreUnderTest, store: Store) -> None:
    """What the first version took was taken, also for rows that are computed once more."""
    job = back.add((1,))
    store.commit_chunk(claim(store), "p", Counts(3, 1, completion_tokens=20), (), gpu(6.0))
    back.finalize(job.id, Counts(3, 1, completion_tokens=20))
    store.reopen(job.id, new_plan((1,)), Counts(failed=1, completion_tokens=4))
    assert of(back, job.id) == (6.0, 6.0)
    store.commit_chunk(claim(store), "p", Counts(1, completion_tokens=4), (), gpu(3.0))
    assert of(back, job.id) == (9.0, 9.0)
    (row,) = back.view("job_progress", job.id)
    assert row["tokens_per_device_hour"] == 20 * 3600 / 9
