"""Jobs, windows and chunks under any order of events.

Workers claim, report, hand back and commit, also with leases that they have lost; leases run
out; jobs are cancelled, expire, fail, are retried; windows are merged and jobs finalized by
several processes. Triggers write down every move of a state, so that none goes unseen.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from jobs.database import Database, upgrade
from jobs.errors import StateConflict
from jobs.records import ChunkLease, Counts, MergeLease
from jobs.states import HAS_WORK, TERMINAL, ChunkState, JobState
from tests.support.job_queue_model import (
    POSTGRES_TRIGGERS,
    SQLITE_TRIGGERS,
    JobQueueModel,
    add_triggers,
)
from tests.support.job_store import ROWS, StoreUnderTest, new_job, new_plan, tallies
from tests.support.postgres import create_database, drop_database

PAST = datetime(2020, 1, 1, tzinfo=UTC)
WORKERS = st.sampled_from(["w0", "w1", "w2"])
MODELS = st.sampled_from(["m0", "m1"])
SHAPES = st.lists(st.integers(0, 2), min_size=1, max_size=3)
CHUNK_COUNTS = st.builds(
    lambda failed, tokens: Counts(
        completed=ROWS - failed, failed=failed, prompt_tokens=tokens, completion_tokens=tokens
    ),
    st.integers(0, ROWS),
    st.integers(0, 9),
)


class JobQueue(RuleBasedStateMachine):
    """The store under test beside what it has to be in."""

    jobs = Bundle("jobs")
    leases = Bundle("leases")  # every lease that was ever won, lost ones too
    merges = Bundle("merges")

    open_back_door: Callable[[], StoreUnderTest]

    def __init__(self) -> None:
        super().__init__()
        self.model = JobQueueModel(self.open_back_door())
        self.back = self.model.back
        self.store = self.model.store

    # ---- submit

    @rule(
        target=jobs,
        shape=SHAPES,
        model=MODELS,
        priority=st.integers(0, 1),
        rejected=st.integers(0, 2),
    )
    def submit(self, shape: list[int], model: str, priority: int, rejected: int) -> str:
        job = self.store.insert_job(
            new_job(
                shape,
                model=model,
                priority=priority,
                rejected=rejected,
                notify_urls=("https://a.example/",),
            )
        )
        self.model.base[job.id] = Counts(failed=rejected)
        self.model.refused[job.id] = rejected
        return job.id

    # ---- workers

    @rule(target=leases, worker=WORKERS, model=MODELS)
    def claim(self, worker: str, model: str) -> Any:
        jobs, chunks_of, _ = self.model.snapshot()
        waiting = [
            chunk
            for job in jobs
            for chunk in chunks_of[job.id]
            if job.model == model and chunk.state == ChunkState.QUEUED and not job.paused_at
        ]
        lease = self.store.claim_chunk(worker, model)
        assert (lease is None) == (not waiting)
        if lease is None:
            return multiple()
        before = next(chunk for chunk in waiting if chunk.id == lease.chunk_id)
        assert lease.epoch == before.lease_epoch + 1
        best = max(self.store.job(chunk.job_id).priority for chunk in waiting)
        assert lease.priority == best
        return lease

    @rule(lease=leases, counts=CHUNK_COUNTS)
    def renew(self, lease: ChunkLease, counts: Counts) -> None:
        held = self.model.holds(lease)
        renewal = self.store.renew(lease.owner, {lease.chunk_id: (lease.epoch, counts)})
        assert (lease.chunk_id in renewal.lost) == (not held)
        assert held or not renewal.stopping
        if held:
            job = self.store.job(lease.job_id)
            stops = job.state == JobState.CANCELLING or job.paused_at is not None
            assert (lease.chunk_id in renewal.stopping) == stops
            assert self.model.chunk(lease).counts == counts

    @rule(lease=leases, counts=CHUNK_COUNTS)
    def release(self, lease: ChunkLease, counts: Counts) -> None:
        held = self.model.holds(lease)
        assert self.store.release_chunk(lease, counts) == held
        assert not self.model.holds(lease)

    @rule(lease=leases, counts=CHUNK_COUNTS)
    def commit(self, lease: ChunkLease, counts: Counts) -> None:
        if lease.job_id in self.model.deleted:
            assert not self.store.commit_chunk(lease, "p", counts)
            return
        before = self.model.chunk(lease)
        part = f"e{lease.epoch}"
        made_before = before.state == ChunkState.DONE and before.lease_epoch == lease.epoch
        held = self.model.holds(lease)
        errors = tallies(counts.failed, before.ordinal * ROWS)
        assert self.store.commit_chunk(lease, part, counts, errors) == (held or made_before)
        self.model.commits[lease.chunk_id] += held
        if held:
            assert (self.model.chunk(lease).part, self.model.chunk(lease).counts) == (part, counts)
        else:
            assert self.model.chunk(lease) == before

    @rule(model=MODELS, counts=CHUNK_COUNTS)
    def work_through(self, model: str, counts: Counts) -> None:
        """A worker takes all that is free, so that many jobs come to their end."""
        while (lease := self.store.claim_chunk("w3", model)) is not None:
            errors = tallies(counts.failed, lease.ordinal * ROWS)
            assert self.store.commit_chunk(lease, "p", counts, errors)
            self.model.commits[lease.chunk_id] += 1

    # ---- time and the sweeper

    @rule(lease=leases)
    def lease_runs_out(self, lease: ChunkLease) -> None:
        self.back.expire_leases(id=lease.chunk_id)

    @rule()
    def merge_leases_run_out(self) -> None:
        self.back.expire_merge_leases()

    @rule()
    def requeue(self) -> None:
        _, chunks_of, _ = self.model.snapshot()
        expired = [
            chunk
            for chunks in chunks_of.values()
            for chunk in chunks
            if chunk.lease_expires_at and chunk.lease_expires_at < datetime.now(UTC)
        ]
        assert self.store.requeue_expired() == len(expired)

    @rule(limit=st.integers(1, 3))
    def wake(self, limit: int) -> None:
        woken = self.store.chunks_to_wake(limit)
        assert len(woken) == len(set(woken)) <= limit
        for wake_up in woken:
            states = {chunk.id: chunk.state for chunk in self.store.chunks(wake_up.job_id)}
            assert states[wake_up.chunk_id] == ChunkState.QUEUED
            assert self.store.job(wake_up.job_id).paused_at is None

    @rule(job_id=jobs)
    def deadline_passes(self, job_id: str) -> None:
        overdue = self.store.job(job_id).state in (JobState.QUEUED, JobState.IN_PROGRESS)
        self.back.set_job(job_id, deadline_at=PAST)
        assert self.store.expire_overdue() == overdue
        if overdue:
            assert self.store.job(job_id).stop_reason == "expired"

    # ---- control

    @rule(job_id=jobs)
    def cancel(self, job_id: str) -> None:
        before = self.store.job(job_id)
        try:
            after = self.store.request_cancel(job_id)
        except StateConflict:
            assert before.state == JobState.FINALIZING or before.state in TERMINAL
            assert before.stop_reason != "cancelled" or before.state == JobState.FAILED
            return
        if before.stop_reason is not None:
            assert after == before
            return
        assert before.state in (JobState.QUEUED, JobState.IN_PROGRESS)
        running = any(c.state == ChunkState.RUNNING for c in self.store.chunks(job_id))
        assert after.state == (JobState.CANCELLING if running else JobState.FINALIZING)

    @rule(job_id=jobs)
    def pause(self, job_id: str) -> None:
        before = self.store.job(job_id)
        try:
            after = self.store.pause(job_id)
        except StateConflict:
            assert before.state not in HAS_WORK
            return
        assert before.state in HAS_WORK
        assert after == replace(before, paused_at=before.paused_at or after.paused_at)
        assert after.paused_at is not None

    @rule(job_id=jobs)
    def resume(self, job_id: str) -> None:
        before = self.store.job(job_id)
        try:
            after = self.store.resume(job_id)
        except StateConflict:
            assert before.state not in HAS_WORK
            return
        assert before.state in HAS_WORK
        assert after == replace(before, paused_at=None)

    @rule(job_id=jobs)
    def fail(self, job_id: str) -> None:
        before = self.store.job(job_id)
        may = before.state not in TERMINAL and before.state != JobState.FINALIZING
        assert self.store.fail_job(job_id, "broken", "it broke") == may

    @rule(job_id=jobs, shape=SHAPES)
    def retry(self, job_id: str, shape: list[int]) -> None:
        """All rows without an answer are tried again, but for those refused at submit."""
        before = self.store.job(job_id)
        published = None
        if before.state == JobState.FAILED:  # it is built upon the version before
            published = self.model.newest.get(job_id)
        counts = published or before.counts
        retried = Counts(
            failed=counts.failed - self.model.refused[job_id],
            cancelled=counts.cancelled,
            expired=counts.expired,
        )
        plan = replace(new_plan(shape), published=published)
        try:
            after = self.store.reopen(job_id, plan, retried)
        except StateConflict:
            never_published = before.state == JobState.FAILED and job_id not in self.model.newest
            assert before.state not in TERMINAL or never_published
            return
        assert (after.state, after.version) == (JobState.QUEUED, before.version + 1)
        assert after.published_version == before.published_version
        self.model.published.pop(job_id, None)
        self.model.base[job_id] = after.counts
        assert after.counts + retried == counts

    @rule(target=jobs, job_id=consumes(jobs))
    def delete(self, job_id: str) -> Any:
        before = self.store.job(job_id)
        try:
            assert self.store.delete_job(job_id)
        except StateConflict:
            assert before.state not in TERMINAL
            return job_id
        assert before.state in TERMINAL
        assert (job_id, before.folder) in self.store.deletions()
        assert self.store.events(job_id)[-1].event == "deleted"
        self.model.deleted.add(job_id)
        return multiple()

    # ---- merging and finalizing

    @rule(target=merges, owner=WORKERS)
    def claim_windows(self, owner: str) -> Any:
        leases = [
            self.store.claim_window(job_id, window, owner)
            for job_id, window in self.store.windows_to_merge()
        ]
        assert None not in leases
        assert self.store.windows_to_merge() == []
        return multiple(*leases)

    @rule(target=merges, owner=WORKERS)
    def claim_finalizations(self, owner: str) -> Any:
        leases = []
        for job_id in self.store.jobs_to_finalize():
            lease = self.store.claim_finalization(job_id, owner)
            assert lease is not None
            self.model.newest_finalization[job_id] = lease.epoch
            leases.append(lease)
        assert self.store.jobs_to_finalize() == []
        return multiple(*leases)

    @rule(lease=merges)
    def renew_merge(self, lease: MergeLease) -> None:
        if lease.job_id in self.model.deleted:
            assert not self.store.renew_merge(lease)
            return
        assert self.store.renew_merge(lease) == self.model.may_finish(lease)

    @rule(lease=merges, spooled=st.integers(0, ROWS))
    def finish_merge(self, lease: MergeLease, spooled: int) -> None:
        if lease.job_id in self.model.deleted:
            if lease.window is None:
                assert not self.store.finish_job(lease, Counts())
            assert not self.store.fail_job(lease.job_id, "code", "message", lease)
            return
        may = self.model.may_finish(lease)
        if lease.window is not None:
            merged = f"w{lease.window.ordinal}-e{lease.epoch}"
            finished = self.store.finish_window(lease, merged)
            windows = self.store.windows(lease.job_id, lease.version)
            assert finished == (windows[lease.window.ordinal].merged == merged)
            assert finished or not may
            return
        before = self.store.job(lease.job_id)
        published, failed = self.model.to_publish(before, spooled)
        published += Counts(prompt_tokens=lease.epoch)  # tells who published it
        finished = self.store.finish_job(lease, published, tallies(failed))
        after = self.store.job(lease.job_id)
        if may:
            assert finished
            assert after.state == {
                None: JobState.COMPLETED,
                "cancelled": JobState.CANCELLED,
                "expired": JobState.EXPIRED,
            }.get(before.stop_reason)
            assert after.published_version == lease.version
            self.model.publish(lease.job_id, published)
        else:
            assert after == before

    @rule(job_id=jobs, spooled=st.integers(0, ROWS))
    def bring_to_end(self, job_id: str, spooled: int) -> None:
        self.back.expire_merge_leases()
        self.store.jobs_to_finalize()
        drained = self.store.job(job_id)
        if drained.state == JobState.FINALIZING:
            published, failed = self.model.to_publish(drained, spooled)
            self.back.finalize(job_id, published, tallies(failed))
            self.model.publish(job_id, published)

    # ---- always

    @invariant()
    def everything_holds(self) -> None:
        self.model.the_tables_agree()
        self.model.all_moves_are_legal()

    def teardown(self) -> None:
        """Whatever happened, a worker and a sweeper bring every job to its end."""
        try:
            self.back.expire_leases()
            self.back.expire_merge_leases()
            self.store.requeue_expired()
            for job in self.model.all_jobs():
                if job.paused_at is not None:
                    self.store.resume(job.id)
            for model in self.store.models_wanted():
                while (lease := self.store.claim_chunk("last", model)) is not None:
                    assert self.store.commit_chunk(lease, "p", Counts(completed=ROWS))
            for job in self.model.all_jobs():
                if job.state not in TERMINAL:
                    self.store.jobs_to_finalize()
                    drained = self.store.job(job.id)
                    self.back.finalize(job.id, self.model.to_publish(drained, 0)[0])
                    self.model.publish(job.id, self.store.job(job.id).counts)
            assert all(job.state in TERMINAL for job in self.model.all_jobs())
            self.everything_holds()
        finally:
            self.back.database.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_any_order_of_events(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "sqlite":
        template = tmp_path / "template.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), template)
        add_triggers(f"sqlite:///{template}", SQLITE_TRIGGERS.split(";\n"))

        def open_back_door() -> StoreUnderTest:
            path = tmp_path / "jobs.db"
            for leftover in tmp_path.glob("jobs.db*"):
                leftover.unlink()
            shutil.copy(template, path)
            return StoreUnderTest(Database(f"sqlite:///{path}"))

    else:
        url = create_database()
        request.addfinalizer(lambda: drop_database(url))
        upgrade(url)
        add_triggers(url, [POSTGRES_TRIGGERS])

        def open_back_door() -> StoreUnderTest:
            back = StoreUnderTest(Database(url))
            back.delete_all()
            return back

    machine = type(
        "JobQueueOn" + kind, (JobQueue,), {"open_back_door": staticmethod(open_back_door)}
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25 if kind == "sqlite" else 10,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
