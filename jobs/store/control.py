"""What a person, or a deadline, may do to a job: cancel, expire, pause, open again."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, update

from jobs.errors import StateConflict
from jobs.records import Counts, JobRecord, Plan
from jobs.sqltypes import database_now
from jobs.states import HAS_WORK, TERMINAL, ChunkState, JobState
from jobs.store import events, read
from jobs.store.moves import finalize_if_drained, lock_job, move_job, stop_chunks
from jobs.store.rows import count_values, counts_of
from jobs.store.submit import insert_plan
from jobs.tables import STOP_REASONS, jobs

CANCELLED = "cancelled"


def request_cancel(connection: Connection, job_id: str, reason: str) -> JobRecord:
    if reason not in STOP_REASONS:
        raise ValueError(f"reason is {reason!r}; it must be one of {', '.join(STOP_REASONS)}")
    job = lock_job(connection, job_id)
    asked_before = job.state == JobState.CANCELLING or (
        job.stop_reason == reason and job.state != JobState.FAILED
    )
    if not asked_before and not stop_job(connection, job, reason):
        raise StateConflict(
            f"job {job_id} is {job.state} and cannot be {reason} any more; "
            "its results stay as they are"
        )
    return read.job(connection, job_id)


def stop_job(
    connection: Connection, job: Row[Any], reason: str, *conditions: ColumnElement[bool]
) -> bool:
    """Let no more chunk of a (locked) job begin; False if it is too late for that."""
    values: dict[str, Any] = {"stop_reason": reason}
    if reason == CANCELLED:
        values["cancel_requested_at"] = database_now()
    if not move_job(connection, job.id, JobState.CANCELLING, *conditions, **values):
        return False
    asked = reason == CANCELLED
    events.record(connection, job.id, events.CANCEL_REQUESTED if asked else events.DEADLINE_PASSED)
    stop_chunks(connection, job, ChunkState.QUEUED)
    finalize_if_drained(connection, job.id)
    return True


def pause(connection: Connection, job_id: str) -> JobRecord:
    job = _lock_unfinished(connection, job_id, "paused")
    if job.paused_at is None:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(paused_at=database_now()))
        events.record(connection, job_id, events.PAUSED)
    return read.job(connection, job_id)


def resume(connection: Connection, job_id: str) -> JobRecord:
    job = _lock_unfinished(connection, job_id, "resumed")
    if job.paused_at is not None:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(paused_at=None))
        events.record(connection, job_id, events.RESUMED)
    return read.job(connection, job_id)


def _lock_unfinished(connection: Connection, job_id: str, done: str) -> Row[Any]:
    job = lock_job(connection, job_id)
    if job.state not in HAS_WORK:
        raise StateConflict(
            f"job {job_id} is {job.state} and cannot be {done}; only a job that is queued or in "
            "progress can"
        )
    return job


def reopen(
    connection: Connection, job_id: str, plan: Plan, retried: Counts, again: bool
) -> JobRecord:
    """Open it, unless an earlier attempt did, whose answer was lost on its way.

    Args:
        again: there was an earlier attempt.
    """
    job = lock_job(connection, job_id)
    if again and job.state not in TERMINAL and plan.follows in (None, job.version - 1):
        return read.job(connection, job_id)
    if plan.follows not in (None, job.version):
        raise StateConflict(
            f"job {job_id} has been retried in the meantime and is at version {job.version}; "
            "see `pagemill status`, and retry it again if rows still lack an answer"
        )
    if job.state == JobState.FAILED and job.published_version is None:
        raise StateConflict(f"job {job_id} failed and published nothing; submit its file again")
    before = plan.published or counts_of(job)
    remaining = before - retried
    if any(value < 0 for value in count_values(remaining).values()):
        raise ValueError(f"job {job_id} has {before}, of which {retried} cannot be retried")
    moved = move_job(
        connection,
        job_id,
        JobState.QUEUED,
        version=job.version + 1,
        input_path=plan.input_path,
        chunks_total=len(plan.chunks),
        chunks_left=len(plan.chunks),
        chunks_done=0,
        rows_at_start=remaining.rows,
        tokens_at_start=remaining.completion_tokens,
        stop_reason=None,
        error_code=None,
        error_message=None,
        started_at=None,
        finalizing_at=None,
        finished_at=None,
        garbage_version=_garbage_of(job),
        # It lies in the past if the job expired, and would stop the retry at once.
        deadline_at=None,
        cancel_requested_at=None,
        **count_values(remaining),
    )
    if not moved:
        raise StateConflict(
            f"job {job_id} is {job.state}; only a job that has ended can be retried"
        )
    rows = sum(chunk.rows for chunk in plan.chunks)
    events.record(connection, job_id, events.RETRIED, f"version {job.version + 1}, rows: {rows}")
    insert_plan(connection, job_id, job.version + 1, plan)
    return read.job(connection, job_id)


def _garbage_of(job: Row[Any]) -> int | None:
    """The version whose garbage is removed next.

    Until a job that failed is opened again, all that it wrote is kept: it can be read.
    """
    found: int | None = job.garbage_version
    return job.version if found is None and job.state == JobState.FAILED else found
