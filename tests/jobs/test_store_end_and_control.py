"""Merging, finalizing, failing, cancelling and retrying."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.errors import JobNotFound, StateConflict
from jobs.records import Counts, MergeLease
from jobs.states import ChunkState, JobState
from jobs.store import Store
from tests.support.job_store import ROWS, StoreUnderTest, new_plan

pytestmark = pytest.mark.quick


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def claimed(lease: MergeLease | None) -> MergeLease:
    assert lease is not None
    return lease


# ---- windows


def test_a_merge_lease_says_what_to_merge(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 2))
    back.finish_work(job.id)
    lease = claimed(store.claim_window(job.id, 1, "finalizer"))
    assert lease == MergeLease(
        job_id=job.id,
        version=1,
        epoch=1,
        owner="finalizer",
        folder=job.folder,
        window=store.windows(job.id)[1].window,
        chunks=tuple(store.chunks(job.id)[1:]),
    )
    assert [c.part for c in lease.chunks] == [f"{c.id}.parquet" for c in lease.chunks]


def test_a_merge_of_a_cancelled_job_knows_why_parts_are_missing(back: StoreUnderTest) -> None:
    job = back.add((2,))
    back.store.request_cancel(job.id)
    lease = claimed(back.store.claim_window(job.id, 0, "f"))
    assert lease.stop_reason == "cancelled"
    assert [(c.state, c.part) for c in lease.chunks] == [(ChunkState.STOPPED, None)] * 2


def test_a_window_is_leased_when_it_is_ready_and_once(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    assert store.claim_window(job.id, 0, "f") is None
    back.finish_work(job.id)
    assert store.claim_window(job.id, 7, "f") is None
    lease = claimed(store.claim_window(job.id, 0, "f"))
    assert store.claim_window(job.id, 0, "g") is None
    assert store.finish_window(lease, "w")
    assert store.claim_window(job.id, 0, "g") is None


def test_a_slow_merger_is_fenced(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    slow = claimed(store.claim_window(job.id, 0, "slow"))
    assert store.renew_merge(slow)
    back.expire_merge_leases()
    assert store.renew_merge(slow)
    assert store.claim_window(job.id, 0, "fast") is None
    back.expire_merge_leases()
    fast = claimed(store.claim_window(job.id, 0, "fast"))
    assert fast.epoch == 2
    assert not store.renew_merge(slow)
    assert not store.finish_window(slow, "e1")
    assert store.finish_window(fast, "e2")
    assert store.finish_window(fast, "e2")  # the answer was lost
    assert not store.finish_window(fast, "e3")
    assert not store.renew_merge(fast)
    assert store.windows(job.id)[0].merged == "e2"


def test_no_merge_for_a_job_that_failed(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 1))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.commit_chunk(lease, "p", Counts())
    merge = claimed(store.claim_window(job.id, 0, "f"))
    store.fail_job(job.id, "broken", "it broke")
    assert not store.finish_window(merge, "w")
    assert not store.renew_merge(merge)
    assert store.claim_window(job.id, 0, "f") is None


# ---- finalization


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (None, JobState.COMPLETED),
        ("cancelled", JobState.CANCELLED),
        ("expired", JobState.EXPIRED),
    ],
)
def test_a_job_ends_by_the_reason_that_stopped_it(
    back: StoreUnderTest, store: Store, reason: str | None, state: JobState
) -> None:
    job = back.add((1, 1))
    if reason is None:
        back.finish_work(job.id)
    else:
        store.request_cancel(job.id, reason)
    published = Counts(completed=5, cancelled=3, prompt_tokens=11)
    back.finalize(job.id, published)
    after = store.job(job.id)
    assert (after.state, after.stop_reason, after.published_version) == (state, reason, 1)
    assert after.counts == published
    assert after.finished_at is not None
    assert after.finalizing_at is not None
    assert after.finished_at >= after.finalizing_at >= after.created_at


def test_a_finalization_lease_lists_the_merged_windows(back: StoreUnderTest) -> None:
    job, store = back.add((1, 1, 1)), back.store
    assert store.claim_finalization(job.id, "f") is None
    back.finish_work(job.id)
    for window in (2, 0, 1):
        assert store.claim_finalization(job.id, "f") is None
        lease = claimed(store.claim_window(job.id, window, "f"))
        assert store.finish_window(lease, f"w{window}")
    lease = claimed(store.claim_finalization(job.id, "finalizer"))
    assert lease == MergeLease(
        job_id=job.id,
        version=1,
        epoch=1,
        owner="finalizer",
        folder=job.folder,
        merged=("w0", "w1", "w2"),
    )
    assert store.claim_finalization(job.id, "other") is None


def ready_to_finalize(back: StoreUnderTest) -> str:
    job = back.add((1,))
    back.finish_work(job.id)
    lease = claimed(back.store.claim_window(job.id, 0, "f"))
    back.store.finish_window(lease, "w")
    return job.id


def test_a_slow_finalizer_is_fenced(back: StoreUnderTest, store: Store) -> None:
    job_id = ready_to_finalize(back)
    slow = claimed(store.claim_finalization(job_id, "slow"))
    assert store.renew_merge(slow)
    back.expire_merge_leases()
    fast = claimed(store.claim_finalization(job_id, "fast"))
    assert not store.renew_merge(slow)
    assert not store.finish_job(slow, Counts(completed=1))
    assert not store.fail_job(job_id, "broken", "it broke", slow)
    assert store.job(job_id).state == JobState.FINALIZING
    assert store.finish_job(fast, Counts(completed=2))
    assert store.finish_job(fast, Counts(completed=2))  # the answer was lost
    assert not store.finish_job(slow, Counts(completed=1))
    assert not store.renew_merge(fast)
    assert store.job(job_id).counts == Counts(completed=2)


def test_a_finalizer_of_an_older_version_is_fenced(back: StoreUnderTest, store: Store) -> None:
    job_id = ready_to_finalize(back)
    old = claimed(store.claim_finalization(job_id, "f"))
    assert store.finish_job(old, Counts(completed=ROWS))
    store.reopen(job_id, new_plan((1,)))
    back.finish_work(job_id, Counts())
    assert not store.finish_job(old, Counts(completed=99))
    back.finalize(job_id, Counts(completed=ROWS))
    assert not store.finish_job(old, Counts(completed=99))
    assert store.job(job_id).published_version == 2


# ---- failure


def test_a_job_that_cannot_be_done_fails(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1, 2))
    assert store.claim_chunk("w", "m")
    assert store.fail_job(job.id, "model_not_found", "no model of that name")
    after = store.job(job.id)
    assert (after.state, after.error_code, after.error_message) == (
        JobState.FAILED,
        "model_not_found",
        "no model of that name",
    )
    assert (after.finished_at is None, after.published_version) == (False, None)
    assert {c.state for c in store.chunks(job.id)} == {ChunkState.STOPPED}
    assert after.chunks_left == 0
    assert not store.fail_job(job.id, "again", "again")
    assert store.job(job.id).error_code == "model_not_found"


def test_a_finalizing_job_is_failed_by_its_leases_alone(back: StoreUnderTest) -> None:
    store = back.store
    job_id = ready_to_finalize(back)
    assert not store.fail_job(job_id, "broken", "it broke")
    lease = claimed(store.claim_finalization(job_id, "f"))
    assert store.fail_job(job_id, "output_incomplete", "a part is missing", lease)
    assert store.job(job_id).state == JobState.FAILED


def test_a_window_that_cannot_be_merged_fails_its_job(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    slow = claimed(store.claim_window(job.id, 0, "slow"))
    back.expire_merge_leases()
    lease = claimed(store.claim_window(job.id, 0, "f"))
    assert not store.fail_job(job.id, "output_incomplete", "a part is missing", slow)
    assert store.fail_job(job.id, "output_incomplete", "a part is missing", lease)
    assert store.job(job.id).state == JobState.FAILED


def test_a_worker_that_lost_its_chunk_fails_no_job(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    lost = store.claim_chunk("w", "m")
    assert lost
    assert store.requeue_owned("w") == 1
    assert not store.fail_job(job.id, "files_damaged", "the input is gone", lost)
    held = store.claim_chunk("other", "m")
    assert held
    assert not store.fail_job(job.id, "files_damaged", "the input is gone", lost)
    assert store.job(job.id).state == JobState.IN_PROGRESS
    assert store.fail_job(job.id, "files_damaged", "the input is gone", held)
    assert store.job(job.id).state == JobState.FAILED


# ---- cancel


def test_cancel_stops_what_waits_and_lets_workers_know(back: StoreUnderTest) -> None:
    job, store = back.add((2, 1)), back.store
    assert store.claim_chunk("w", "m")
    cancelled = store.request_cancel(job.id)
    assert (cancelled.state, cancelled.stop_reason) == (JobState.CANCELLING, "cancelled")
    assert cancelled.cancel_requested_at is not None
    assert cancelled.chunks_left == 1
    assert [w.chunks_left for w in store.windows(job.id)] == [1, 0]
    assert [c.state for c in store.chunks(job.id)] == ["running", "stopped", "stopped"]
    assert store.request_cancel(job.id) == cancelled


def test_cancel_without_a_running_chunk_ends_without_a_worker(back: StoreUnderTest) -> None:
    job, store = back.add((2, 1)), back.store
    cancelled = store.request_cancel(job.id)
    assert (cancelled.state, cancelled.chunks_left) == (JobState.FINALIZING, 0)
    assert store.request_cancel(job.id) == cancelled
    back.finalize(job.id, Counts(cancelled=3 * ROWS))
    assert store.request_cancel(job.id).state == JobState.CANCELLED


def test_cancel_comes_too_late(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    with pytest.raises(StateConflict, match=f"{job.id} is finalizing and cannot be cancelled"):
        store.request_cancel(job.id)
    back.finalize(job.id, Counts(completed=ROWS))
    with pytest.raises(StateConflict, match="is completed and cannot be cancelled"):
        store.request_cancel(job.id)
    failed = back.add((1,))
    store.fail_job(failed.id, "broken", "it broke")
    with pytest.raises(StateConflict, match="is failed"):
        store.request_cancel(failed.id)


def test_cancel_of_a_job_that_expires(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    assert store.claim_chunk("w", "m")
    expiring = store.request_cancel(job.id, "expired")
    assert expiring.cancel_requested_at is None
    assert store.request_cancel(job.id) == expiring  # it stops already
    assert expiring.stop_reason == "expired"


def test_cancel_of_nothing(store: Store) -> None:
    with pytest.raises(JobNotFound, match="there is no job job_nowhere"):
        store.request_cancel("job_nowhere")
    with pytest.raises(ValueError, match="must be one of cancelled, expired"):
        store.request_cancel("job_nowhere", "bored")


# ---- retry


@pytest.mark.parametrize("reason", [None, "cancelled", "expired"])
def test_a_retry_opens_the_next_version(
    back: StoreUnderTest, store: Store, reason: str | None
) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC) if reason == "expired" else None
    job = back.add((2, 1), deadline_at=past)
    if reason is None:
        back.finish_work(job.id)
    else:
        store.request_cancel(job.id, reason)
    back.finalize(job.id, Counts(completed=6, failed=1, cancelled=2, expired=3, prompt_tokens=50))
    before = store.job(job.id)

    retried = Counts(failed=1, cancelled=1, expired=3, prompt_tokens=20)
    opened = store.reopen(job.id, new_plan((1, 2)), retried)
    assert (opened.state, opened.version, opened.published_version) == (JobState.QUEUED, 2, 1)
    assert opened.counts == Counts(completed=6, cancelled=1, prompt_tokens=30)
    assert (opened.total_rows, opened.chunks_total, opened.chunks_left) == (3 * ROWS, 3, 3)
    assert opened.created_at == before.created_at
    for name in (
        "stop_reason",
        "error_code",
        "error_message",
        "waiting_for",
        "started_at",
        "finalizing_at",
        "finished_at",
        "deadline_at",
        "cancel_requested_at",
    ):
        assert getattr(opened, name) is None, name
    assert [c.id for c in store.chunks(job.id)] == [f"{job.id}-v2-{n:06d}" for n in range(3)]
    assert [w.chunks_left for w in store.windows(job.id)] == [1, 2]

    assert store.expire_overdue() == 0
    back.complete(job.id)
    after = store.job(job.id)
    assert (after.state, after.version, after.published_version) == (JobState.COMPLETED, 2, 2)


def test_a_lease_of_an_older_version_is_worth_nothing(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.request_cancel(job.id)
    back.expire_leases()
    store.requeue_expired()
    back.finalize(job.id, Counts(cancelled=ROWS))
    store.reopen(job.id, new_plan((1,)), Counts(cancelled=ROWS))
    assert not store.commit_chunk(lease, "p", Counts(completed=ROWS))
    assert not store.release_chunk(lease, Counts())
    assert store.job(job.id).counts == Counts()
    fresh = store.claim_chunk("w", "m")
    assert fresh is not None
    assert (fresh.version, fresh.chunk_id) == (2, f"{job.id}-v2-000000")


def test_a_retry_needs_a_job_that_ended_with_results(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    with pytest.raises(StateConflict, match="is queued; only a job that has ended"):
        store.reopen(job.id, new_plan((1,)))
    store.fail_job(job.id, "broken", "it broke")
    with pytest.raises(StateConflict, match="failed and published nothing"):
        store.reopen(job.id, new_plan((1,)))
    with pytest.raises(JobNotFound):
        store.reopen("job_nowhere", new_plan((1,)))


def test_a_retry_of_more_rows_than_there_are(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    back.complete(job.id)
    with pytest.raises(ValueError, match="cannot be retried"):
        store.reopen(job.id, new_plan((1,)), Counts(failed=1))
    assert store.job(job.id).state == JobState.COMPLETED
