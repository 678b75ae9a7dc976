"""A paused job waits, whoever looks for work; its deadline and a cancel do not."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from jobs.errors import StateConflict
from jobs.records import Counts, Renewal
from jobs.states import ChunkState, JobState
from jobs.store import Store
from tests.support.command_line import CommandLine
from tests.support.job_store import ROWS, StoreUnderTest, new_plan

pytestmark = pytest.mark.quick


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def test_no_chunk_of_it_is_claimed_or_sent(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    assert store.pause(job.id).paused_at is not None
    assert store.claim_chunk("w", "m") is None
    assert store.models_wanted() == []
    assert store.chunks_to_wake(lost=True) == []
    other = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    assert lease.job_id == other.id


def test_running_rows_are_handed_back_at_the_next_heartbeat(
    back: StoreUnderTest, store: Store
) -> None:
    job = back.add((2,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.pause(job.id)
    done = Counts(completed=2)
    renewal = store.renew("w", {lease.chunk_id: (lease.epoch, done)})
    assert renewal == Renewal(stopping=frozenset({lease.chunk_id}))
    assert store.release_chunk(lease, done)
    assert [chunk.state for chunk in store.chunks(job.id)] == [ChunkState.QUEUED] * 2
    assert store.progress(job.id).counts == done
    assert store.job(job.id).state == JobState.IN_PROGRESS
    assert store.claim_chunk("w", "m") is None


def test_a_lease_that_runs_out_meanwhile_waits_with_the_others(
    back: StoreUnderTest, store: Store
) -> None:
    job = back.add((1,))
    assert store.claim_chunk("w", "m") is not None
    store.pause(job.id)
    back.expire_leases()
    assert store.requeue_expired() == 1
    assert store.claim_chunk("w", "m") is None
    assert store.chunks_to_wake(lost=True) == []
    store.resume(job.id)
    assert [wake.job_id for wake in store.chunks_to_wake()] == [job.id]


def test_messages_of_the_time_before_are_sent_again(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    assert len(store.chunks_to_wake()) == 2
    store.pause(job.id)
    assert store.chunks_to_wake(lost=True) == []
    store.resume(job.id)
    assert len(store.chunks_to_wake(lost=True)) == 2


def test_both_may_be_repeated(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    assert store.resume(job.id) == job
    paused = store.pause(job.id)
    assert store.pause(job.id) == paused
    assert store.resume(job.id) == store.resume(job.id) == job


def test_the_last_chunk_may_still_come_in(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.pause(job.id)
    assert store.commit_chunk(lease, "p", Counts(completed=ROWS))
    after = store.job(job.id)
    assert (after.state, after.paused_at) == (JobState.FINALIZING, None)


def test_the_deadline_goes_on(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,), deadline_at=datetime.now(UTC) + timedelta(hours=1))
    store.pause(job.id)
    back.set_job(job.id, deadline_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert store.expire_overdue() == 1
    after = store.job(job.id)
    assert (after.stop_reason, after.paused_at) == ("expired", None)


def test_a_paused_job_can_be_cancelled(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.pause(job.id)
    after = store.request_cancel(job.id)
    assert (after.state, after.paused_at) == (JobState.CANCELLING, None)
    assert store.release_chunk(lease, Counts())
    assert store.job(job.id).state == JobState.FINALIZING


@pytest.mark.parametrize("state", [JobState.CANCELLING, JobState.FINALIZING, JobState.COMPLETED])
def test_it_is_too_late_once_the_job_ends(
    back: StoreUnderTest, store: Store, state: JobState
) -> None:
    job = back.add((1,))
    if state == JobState.CANCELLING:
        assert store.claim_chunk("w", "m") is not None
        store.request_cancel(job.id)
    elif state == JobState.FINALIZING:
        back.finish_work(job.id)
    else:
        back.complete(job.id)
    assert store.job(job.id).state == state
    with pytest.raises(StateConflict, match=f"is {state} and cannot be paused"):
        store.pause(job.id)
    with pytest.raises(StateConflict, match=f"is {state} and cannot be resumed"):
        store.resume(job.id)


def test_a_retry_is_not_paused(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    store.pause(job.id)
    store.request_cancel(job.id)
    back.finalize(job.id, Counts(cancelled=ROWS))
    assert store.reopen(job.id, new_plan((1,)), Counts(cancelled=ROWS)).paused_at is None
    assert store.claim_chunk("w", "m") is not None


def test_those_who_poll_see_it(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.commit_chunk(lease, "p", Counts(completed=ROWS))
    back.set_job(job.id, started_at=datetime.now(UTC) - timedelta(hours=1))
    (seen,) = back.view("job_progress", job.id)
    assert seen["paused_at"] is None
    assert seen["eta_seconds"] is not None
    store.pause(job.id)
    (seen,) = back.view("job_progress", job.id)
    assert seen["paused_at"] is not None
    assert (seen["state"], seen["eta_seconds"]) == ("in_progress", None)


# ---- the commands


def test_the_commands_say_what_they_did(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    for _ in range(2):
        out, said = cli("pause", job_id)
        assert out == ""
        assert f"job {job_id} is paused; `pagemill resume {job_id}` lets it go on" in said
    assert cli.json("status", job_id)["paused_at"]
    shown, _ = cli("status", job_id)
    assert re.search(r"^state +queued \(paused\)$", shown, re.MULTILINE)
    assert "no worker" not in shown
    assert "queued (paused)" in cli("list")[0]
    for _ in range(2):
        _, said = cli("resume", job_id)
        assert f"job {job_id} goes on" in said
    assert cli.json("status", job_id)["paused_at"] is None
    assert "paused" not in cli("list")[0]


def test_wait_says_that_the_job_is_paused(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    cli("pause", job_id)
    _, said = cli("wait", job_id, "--timeout", "0.6", expect=124)
    assert said.count(f"job {job_id} is paused since ") == 2  # at once, and at the end
    assert "queued (paused)  0/1 rows answered" in said
    assert "no worker" not in said


def test_a_paused_job_that_is_cancelled_ends_at_once(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    cli("pause", job_id)
    cli("cancel", job_id)
    assert cli.json("status", job_id)["state"] == "cancelled"
    _, said = cli("pause", job_id, expect=75)
    assert "is cancelled and cannot be paused" in said
