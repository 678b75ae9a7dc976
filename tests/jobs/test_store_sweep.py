"""What the sweeper finds: lost chunks, chunks to wake, overdue jobs, unfinished ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Row, select, update

from jobs.records import Counts, WakeUp
from jobs.sqltypes import database_now
from jobs.states import ChunkState, JobState
from jobs.store import Store, leases, sweep
from jobs.store.moves import lock_job
from jobs.tables import chunks as chunks_table
from jobs.tables import jobs as jobs_table
from tests.support.job_store import ROWS, StoreUnderTest

pytestmark = pytest.mark.quick

PAST = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def woken(wake_ups: list[WakeUp]) -> list[str]:
    return [wake_up.chunk_id for wake_up in wake_ups]


def states(store: Store, job_id: str) -> list[str]:
    return [c.state for c in store.chunks(job_id)]


# ---- leases that ran out


def test_chunks_of_silent_workers_go_back(back: StoreUnderTest, store: Store) -> None:
    jobs = [back.add((2,)) for _ in range(2)]
    assert all(store.claim_chunk("w", "m") for _ in range(3))
    assert store.requeue_expired() == 0
    back.expire_leases(ordinal=0)
    assert store.requeue_expired() == 2
    assert store.requeue_expired() == 0
    assert sorted(states(store, jobs[0].id) + states(store, jobs[1].id)) == [
        "queued",
        "queued",
        "queued",
        "running",
    ]
    chunk = store.chunks(jobs[0].id)[0]
    assert (chunk.lease_owner, chunk.lease_epoch) == (None, 1)


def test_chunks_of_a_dead_worker_go_back_at_once(back: StoreUnderTest, store: Store) -> None:
    job = back.add((3,))
    for owner in ("host:12:aa", "host:1:bb", "ho%t:12:cc"):
        assert store.claim_chunk(owner, "m")
    assert store.requeue_owned("host:12:") == 1
    assert store.requeue_owned("host:12:") == 0
    owners = {c.lease_owner: c.state for c in store.chunks(job.id)}
    assert owners == {None: "queued", "host:1:bb": "running", "ho%t:12:cc": "running"}


def test_a_percent_sign_in_a_host_name_is_no_pattern(back: StoreUnderTest, store: Store) -> None:
    back.add((1,))
    assert store.claim_chunk("host:12:aa", "m")
    assert store.requeue_owned("h%t:12:") == 0


def test_a_requeued_chunk_keeps_its_counts_and_is_woken(back: StoreUnderTest) -> None:
    job, store = back.add((1,)), back.store
    store.chunks_to_wake()
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.renew("w", {lease.chunk_id: (lease.epoch, Counts(completed=3))})
    back.expire_leases()
    store.requeue_expired()
    assert store.chunks(job.id)[0].counts == Counts(completed=3)
    assert woken(store.chunks_to_wake()) == [lease.chunk_id]


def test_silent_workers_do_not_hold_up_a_cancel(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 1))
    assert store.claim_chunk("w", "m")
    store.request_cancel(job.id)
    back.expire_leases()
    assert store.requeue_expired() == 1
    assert states(store, job.id) == ["stopped", "stopped"]
    assert [w.chunks_left for w in store.windows(job.id)] == [0, 0]
    assert store.job(job.id).state == JobState.FINALIZING


# ---- wake-ups


def test_a_chunk_is_woken_once_then_after_growing_waits(back: StoreUnderTest) -> None:
    job, store = back.add((1,)), back.store
    waits = []
    for _ in range(9):
        assert woken(store.chunks_to_wake(resend_seconds=10)) == [f"{job.id}-v1-000000"]
        assert store.chunks_to_wake(resend_seconds=10) == []
        with back.database.read() as connection:
            (row,) = connection.execute(select(chunks_table, database_now().label("now")))
        waits.append(round((row.wake_at - row.now).total_seconds()))
        back.set_chunks(job.id, wake_at=database_now(-1.0))
    expected = [20, 40, 80, 160, 320, 640, 640, 640, 640]
    assert all(abs(a - b) <= 3 for a, b in zip(waits, expected, strict=True)), waits


def test_only_queued_chunks_of_the_model_and_not_too_many(back: StoreUnderTest) -> None:
    job, store = back.add((5,)), back.store
    other = back.add((1,), model="other", priority=4)
    assert store.claim_chunk("w", "m")
    ids = [f"{job.id}-v1-{n:06d}" for n in range(5)]
    assert woken(store.chunks_to_wake(limit=2, model="m")) == ids[1:3]
    assert woken(store.chunks_to_wake(limit=9, model="m")) == ids[3:]
    assert store.chunks_to_wake(limit=0) == []
    assert store.chunks_to_wake() == [WakeUp(other.id, f"{other.id}-v1-000000", "other", 4)]


def test_when_messages_were_lost_chunks_are_named_whatever_was_sent(back: StoreUnderTest) -> None:
    job, store = back.add((4,)), back.store
    assert store.claim_chunk("w", "m")
    assert len(store.chunks_to_wake()) == 3
    assert store.chunks_to_wake() == []
    ids = [f"{job.id}-v1-{n:06d}" for n in range(1, 4)]
    assert woken(store.chunks_to_wake(limit=2, lost=True)) == ids[:2]
    assert sorted(woken(store.chunks_to_wake(lost=True))) == ids
    assert store.chunks_to_wake(model="other", lost=True) == []


def test_wake_ups_are_as_fair_as_claims(back: StoreUnderTest) -> None:
    back.add((50,), id="job_big_")
    back.add((2,), id="job_small")
    back.add((2,), id="job_high_", priority=1)
    order = [wake_up.job_id for wake_up in back.store.chunks_to_wake(limit=8)]
    assert order[:2] == ["job_high_"] * 2
    assert order[2:] == ["job_big_", "job_small"] * 2 + ["job_big_"] * 2


def test_nothing_of_a_stopping_job_is_woken(back: StoreUnderTest) -> None:
    job = back.add((3,))
    assert back.store.claim_chunk("w", "m")
    back.store.request_cancel(job.id)
    assert back.store.chunks_to_wake() == []


# ---- deadlines


def test_overdue_jobs_stop(back: StoreUnderTest, store: Store) -> None:
    running, waiting = (back.add((2,), deadline_at=PAST) for _ in range(2))
    in_time = back.add((1,), deadline_at=FUTURE)
    without = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    assert lease.job_id == running.id
    assert store.expire_overdue() == 2
    assert store.expire_overdue() == 0
    for job, state in ((running, JobState.CANCELLING), (waiting, JobState.FINALIZING)):
        after = store.job(job.id)
        assert (after.state, after.stop_reason, after.cancel_requested_at) == (
            state,
            "expired",
            None,
        )
    assert states(store, running.id) == ["running", "stopped"]
    assert {store.job(j.id).state for j in (in_time, without)} == {JobState.QUEUED}
    assert store.renew("w", {lease.chunk_id: (1, Counts())}).stopping == {lease.chunk_id}


def test_a_job_that_is_finalizing_or_stopping_does_not_expire(back: StoreUnderTest) -> None:
    finalizing = back.add((1,), deadline_at=FUTURE)
    back.finish_work(finalizing.id)
    stopping = back.add((1,), deadline_at=FUTURE)
    assert back.store.claim_chunk("w", "m")
    back.store.request_cancel(stopping.id)
    for job in (finalizing, stopping):
        back.set_job(job.id, deadline_at=PAST)
    assert back.store.expire_overdue() == 0
    assert back.store.job(finalizing.id).stop_reason is None
    assert back.store.job(stopping.id).stop_reason == "cancelled"


# ---- ends


def test_a_job_without_chunks_comes_to_its_end(back: StoreUnderTest, store: Store) -> None:
    job = back.add((0,), rejected=4)
    assert job.state == JobState.QUEUED
    assert store.jobs_to_finalize() == []
    assert store.job(job.id).state == JobState.FINALIZING
    back.finalize(job.id, Counts(failed=4))
    assert store.job(job.id).state == JobState.COMPLETED


def test_windows_are_merged_while_the_job_runs(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 2, 1))
    lease = [store.claim_chunk("w", "m") for _ in range(4)][3]
    assert lease is not None
    assert (lease.ordinal, lease.window) == (3, 2)
    assert store.windows_to_merge() == []
    store.commit_chunk(lease, "p", Counts(completed=ROWS))
    assert store.windows_to_merge() == [(job.id, 2)]
    merge = store.claim_window(job.id, 2, "f")
    assert merge is not None
    assert store.windows_to_merge() == []
    back.expire_merge_leases()
    assert store.windows_to_merge() == [(job.id, 2)]
    assert store.finish_window(merge, "w2")
    assert store.windows_to_merge() == []
    assert store.job(job.id).state == JobState.IN_PROGRESS


def test_a_job_is_finalized_when_all_its_windows_are_merged(back: StoreUnderTest) -> None:
    job, store = back.add((1, 1)), back.store
    back.finish_work(job.id)
    assert store.windows_to_merge() == [(job.id, 0), (job.id, 1)]
    for window in (0, 1):
        assert store.jobs_to_finalize() == []
        merge = store.claim_window(job.id, window, "f")
        assert merge is not None
        assert store.finish_window(merge, f"w{window}")
    assert store.jobs_to_finalize() == [job.id]
    assert store.claim_finalization(job.id, "f") is not None
    assert store.jobs_to_finalize() == []
    back.expire_merge_leases()
    assert store.jobs_to_finalize() == [job.id]


def test_a_failed_job_leaves_nothing_to_do(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 1))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.commit_chunk(lease, "p", Counts(completed=ROWS))
    store.fail_job(job.id, "broken", "it broke")
    back.expire_leases()
    assert store.windows_to_merge() == []
    assert store.jobs_to_finalize() == []
    assert store.requeue_expired() == 0
    assert store.chunks_to_wake() == []
    assert states(store, job.id) == [ChunkState.DONE, ChunkState.STOPPED]


def test_a_lost_move_to_finalizing_is_made_up_for(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    back.set_job(job.id, state=JobState.CANCELLING, stop_reason="cancelled")
    store.jobs_to_finalize()
    assert store.job(job.id).state == JobState.FINALIZING


# ---- what changes between finding a job and locking it


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[Connection, str], object]) -> None:
    """Let something happen just before the sweeper has the lock of a job that it found."""

    def change_then_lock(connection: Connection, job_id: str) -> Row[Any]:
        change(connection, job_id)
        return lock_job(connection, job_id)

    monkeypatch.setattr(sweep, "lock_job", change_then_lock)


def test_a_lease_that_was_renewed_meanwhile_is_kept(
    back: StoreUnderTest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    back.expire_leases()
    held = {lease.chunk_id: (lease.epoch, Counts())}
    meanwhile(monkeypatch, lambda connection, _: leases.renew(connection, "w", held, 60, {}))
    assert store.requeue_expired() == 0
    assert store.commit_chunk(lease, "p", Counts(completed=ROWS))


def test_a_deadline_that_was_lifted_meanwhile_is_no_deadline(
    back: StoreUnderTest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = back.add((1,), deadline_at=PAST)
    meanwhile(monkeypatch, lambda c, _: c.execute(update(jobs_table).values(deadline_at=None)))
    assert store.expire_overdue() == 0
    assert store.job(job.id).state == JobState.QUEUED
