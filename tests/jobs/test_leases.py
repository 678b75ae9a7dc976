"""Leases of chunks: who gets which chunk, and who may still commit it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs.records import ChunkLease, Counts, Renewal
from jobs.states import ChunkState, JobState
from jobs.store import Store
from tests.support.job_store import ROWS, StoreUnderTest, new_job

pytestmark = pytest.mark.quick

ALL = Counts(completed=ROWS, prompt_tokens=10, cached_tokens=5, completion_tokens=7)


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def claim(store: Store, worker: str = "w") -> ChunkLease:
    lease = store.claim_chunk(worker, "m")
    assert lease is not None
    return lease


def chunk_states(store: Store, job_id: str) -> list[ChunkState]:
    return [c.state for c in store.chunks(job_id)]


# ---- claim


def test_a_claim_carries_all_that_the_worker_needs(store: Store) -> None:
    new = new_job((1, 1), priority=3)
    store.insert_job(new)
    lease = claim(store, "worker-1")
    assert lease == ChunkLease(
        chunk_id=f"{new.id}-v1-000000",
        job_id=new.id,
        version=1,
        ordinal=0,
        window=0,
        rows=ROWS,
        epoch=1,
        owner="worker-1",
        model="m",
        folder=new.folder,
        input_path=new.plan.input_path,
        options=new.options,
        seed=new.seed,
        priority=3,
    )


def test_a_claim_leases_by_the_clock_of_the_database(back: StoreUnderTest) -> None:
    store = Store(back.database, lease_seconds=300)
    job = back.add((1,))
    claim(store, "worker-1")
    (chunk,) = store.chunks(job.id)
    assert (chunk.state, chunk.lease_owner, chunk.lease_epoch) == (
        ChunkState.RUNNING,
        "worker-1",
        1,
    )
    assert chunk.lease_expires_at is not None
    left = chunk.lease_expires_at - store.progress(job.id).now
    assert timedelta(seconds=290) < left <= timedelta(seconds=300)


def test_the_first_claim_starts_the_job(store: Store) -> None:
    job = store.insert_job(new_job((2,)))
    claim(store)
    started = store.job(job.id)
    assert (started.state, started.chunks_left) == (JobState.IN_PROGRESS, 2)
    assert started.started_at is not None
    claim(store)
    assert store.job(job.id).started_at == started.started_at


def test_nothing_is_free(store: Store) -> None:
    assert store.claim_chunk("w", "m") is None
    store.insert_job(new_job((1,), model="other"))
    assert store.claim_chunk("w", "m") is None
    store.insert_job(new_job((1,)))
    claim(store)
    assert store.claim_chunk("w", "m") is None


def test_priority_first_then_age(store: Store) -> None:
    for id, priority in (("job_b_low", 0), ("job_a_low", 0), ("job_high", 5), ("job_less", -1)):
        store.insert_job(new_job((2,), id=id, priority=priority))
    order = [claim(store).job_id for _ in range(8)]
    assert order[:2] == ["job_high"] * 2
    # Equal jobs take turns, the older one first.
    assert order[2:6] == ["job_b_low", "job_a_low"] * 2
    assert order[6:] == ["job_less"] * 2


def test_a_job_with_fewer_running_chunks_comes_first(store: Store) -> None:
    big = store.insert_job(new_job((10,)))
    running = [claim(store) for _ in range(3)]
    small = store.insert_job(new_job((10,)))
    assert [claim(store).job_id for _ in range(4)] == [small.id] * 3 + [big.id]
    for lease in running:
        store.commit_chunk(lease, lease.chunk_id, ALL)
    assert claim(store).job_id == big.id


def test_chunks_of_a_job_in_order(store: Store) -> None:
    store.insert_job(new_job((2, 2)))
    assert [claim(store).ordinal for _ in range(4)] == [0, 1, 2, 3]


# ---- renew


def test_renewing_prolongs_and_reports(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    leases = [claim(store) for _ in range(2)]
    back.expire_leases()
    live = Counts(completed=1, prompt_tokens=3)
    held = {lease.chunk_id: (lease.epoch, live) for lease in leases}
    assert store.renew("w", held) == Renewal()
    assert store.requeue_expired() == 0
    assert [c.counts for c in store.chunks(job.id)] == [live, live]
    assert store.renew("w", {}) == Renewal()


def test_what_was_taken_away_is_lost(back: StoreUnderTest, store: Store) -> None:
    job = back.add((5,))
    kept, reclaimed, requeued, done = (claim(store, "w") for _ in range(4))
    other = claim(store, "other")
    store.commit_chunk(done, "p", ALL)
    back.expire_leases(id=requeued.chunk_id)
    back.expire_leases(id=reclaimed.chunk_id)
    store.requeue_expired()
    # Claimed again by the same worker: the lease is another all the same.
    again = claim(store, "w")
    assert (again.chunk_id, again.epoch) == (reclaimed.chunk_id, 2)
    held = (kept, requeued, reclaimed, done, other)
    renewal = store.renew(
        "w",
        {lease.chunk_id: (lease.epoch, Counts(failed=1)) for lease in held}
        | {"job_gone-v1-000000": (1, Counts())},
    )
    lost = {lease.chunk_id for lease in (requeued, reclaimed, done, other)}
    assert renewal == Renewal(lost=frozenset(lost | {"job_gone-v1-000000"}))
    reported = {c.ordinal for c in store.chunks(job.id) if c.counts.failed}
    assert reported == {kept.ordinal}


def test_a_heartbeat_hears_of_cancellation(back: StoreUnderTest, store: Store) -> None:
    jobs = [back.add((2,)) for _ in range(2)]
    leases = [claim(store) for _ in jobs]
    assert [lease.job_id for lease in leases] == [job.id for job in jobs]
    store.request_cancel(jobs[0].id)
    held = {lease.chunk_id: (lease.epoch, Counts()) for lease in leases}
    assert store.renew("w", held) == Renewal(stopping=frozenset({leases[0].chunk_id}))


def test_a_heartbeat_hears_of_failure(store: Store) -> None:
    job = store.insert_job(new_job((2,)))
    lease = claim(store)
    store.fail_job(job.id, "broken", "it broke")
    renewal = store.renew("w", {lease.chunk_id: (lease.epoch, Counts())})
    assert renewal == Renewal(lost=frozenset({lease.chunk_id}))
    assert not store.commit_chunk(lease, "p", ALL)


# ---- release


def test_a_released_chunk_is_woken_at_once(store: Store) -> None:
    job = store.insert_job(new_job((1,)))
    assert len(store.chunks_to_wake()) == 1
    lease = claim(store)
    assert store.release_chunk(lease, Counts(completed=1))
    (chunk,) = store.chunks(job.id)
    assert (chunk.state, chunk.lease_owner, chunk.lease_expires_at) == (
        ChunkState.QUEUED,
        None,
        None,
    )
    assert chunk.counts == Counts(completed=1)
    assert [w.chunk_id for w in store.chunks_to_wake()] == [chunk.id]
    assert claim(store).epoch == 2


def test_what_is_not_held_cannot_be_released(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    lease = claim(store)
    assert store.release_chunk(lease, Counts())
    assert not store.release_chunk(lease, Counts())
    claim(store, "other")
    assert not store.release_chunk(lease, Counts())
    assert chunk_states(store, job.id) == [ChunkState.RUNNING]


def test_released_while_the_job_stops(store: Store) -> None:
    job = store.insert_job(new_job((1, 2)))
    leases = [claim(store) for _ in range(2)]
    store.request_cancel(job.id)
    assert store.job(job.id).chunks_left == 2
    assert store.release_chunk(leases[1], Counts())
    assert [w.chunks_left for w in store.windows(job.id)] == [1, 0]
    assert store.job(job.id).state == JobState.CANCELLING
    assert store.release_chunk(leases[0], Counts())
    assert chunk_states(store, job.id) == [ChunkState.STOPPED] * 3
    assert store.job(job.id).state == JobState.FINALIZING


# ---- commit


def test_a_commit_counts_off_the_chunk(store: Store) -> None:
    job = store.insert_job(new_job((1, 2), rejected=1))
    lease = claim(store)
    assert store.commit_chunk(lease, "_parts/a.parquet", ALL)
    after = store.job(job.id)
    assert (after.state, after.chunks_left) == (JobState.IN_PROGRESS, 2)
    assert after.counts == ALL + Counts(failed=1)
    assert [w.chunks_left for w in store.windows(job.id)] == [0, 2]
    chunk = store.chunks(job.id)[0]
    assert (chunk.state, chunk.part, chunk.counts) == (ChunkState.DONE, "_parts/a.parquet", ALL)
    assert (chunk.lease_owner, chunk.lease_expires_at) == ("w", None)


def test_the_last_commit_begins_the_end(store: Store) -> None:
    job = store.insert_job(new_job((2,)))
    for lease in [claim(store) for _ in range(2)]:
        assert store.job(job.id).finalizing_at is None
        assert store.commit_chunk(lease, "p", ALL)
    after = store.job(job.id)
    assert (after.state, after.chunks_left) == (JobState.FINALIZING, 0)
    assert after.finalizing_at is not None


def test_a_lease_that_ran_out_may_commit_until_it_is_taken(back: StoreUnderTest) -> None:
    back.add((1,))
    lease = claim(back.store)
    back.expire_leases()
    assert back.store.commit_chunk(lease, "p", ALL)


def test_a_stale_worker_is_fenced(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    stale = claim(store, "slow")
    back.expire_leases()
    store.requeue_expired()
    assert not store.commit_chunk(stale, "e1", ALL)
    fresh = claim(store, "fast")
    assert not store.commit_chunk(stale, "e1", ALL)
    assert store.commit_chunk(fresh, "e2", ALL)
    assert not store.commit_chunk(stale, "e1", ALL)
    assert not store.commit_chunk(stale, "e2", ALL)
    assert store.chunks(job.id)[0].part == "e2"
    assert store.job(job.id).counts == ALL


def test_a_commit_whose_answer_was_lost_is_answered_again(store: Store) -> None:
    job = store.insert_job(new_job((2,)))
    lease = claim(store)
    for _ in range(2):
        assert store.commit_chunk(lease, "p", ALL)
    assert not store.commit_chunk(lease, "another part", ALL)
    assert (store.job(job.id).counts, store.job(job.id).chunks_left) == (ALL, 1)


def test_what_was_answered_before_a_cancel_still_counts(store: Store) -> None:
    job = store.insert_job(new_job((2,)))
    lease = claim(store)
    store.request_cancel(job.id)
    assert store.commit_chunk(lease, "p", ALL)
    after = store.job(job.id)
    assert (after.state, after.counts) == (JobState.FINALIZING, ALL)
    assert chunk_states(store, job.id) == [ChunkState.DONE, ChunkState.STOPPED]


def test_a_lease_of_a_job_that_is_gone(back: StoreUnderTest) -> None:
    back.add((1,))
    lease = claim(back.store)
    back.delete_all()
    assert not back.store.commit_chunk(lease, "p", ALL)
    assert not back.store.release_chunk(lease)


# ---- models


def test_models_with_queued_chunks(store: Store) -> None:
    assert store.models_wanted() == []
    for model in ("b", "a", "b"):
        store.insert_job(new_job((1,), model=model))
    assert store.models_wanted() == ["a", "b"]
    assert store.claim_chunk("w", "a") is not None
    assert store.models_wanted() == ["b"]
