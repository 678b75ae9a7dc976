"""A new job, and the work of one version of a job."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, insert, select

from jobs.errors import KeyReused, StateConflict
from jobs.records import Counts, JobRecord, NewJob, Plan
from jobs.sqltypes import database_now
from jobs.states import ChunkState, JobState
from jobs.store import events, read
from jobs.store.row_errors import add_errors
from jobs.store.rows import ZERO, chunk_id, count_values, inserted_unless_there, job_record
from jobs.tables import AT_SUBMIT, chunks, jobs, windows

BATCH = 10_000  # rows of one INSERT, so that the parameters of a large job never lie in memory


def insert_job(connection: Connection, job: NewJob, again: bool) -> JobRecord:
    """Insert it, unless there is a job of its idempotency key, which is returned then.

    Nor is it inserted again if an earlier attempt did, whose answer was lost on its way.

    Args:
        again: there was an earlier attempt.
    """
    while not _insert_row(connection, job):
        if read.is_there(connection, job.id):
            if again:
                return read.job(connection, job.id)
            raise StateConflict(
                f"there is a job {job.id} already; a new job needs an id of its own"
            )
        other = _submitted_before(connection, job)
        if other is not None:
            return other
        # It was deleted between these statements, and its key is free again.
    insert_plan(connection, job.id, 1, job.plan)
    add_errors(connection, job.id, 1, AT_SUBMIT, job.plan.rejected_errors)
    refused = f" ({job.plan.rejected} refused)" if job.plan.rejected else ""
    events.record(connection, job.id, events.SUBMITTED, f"rows: {job.plan.total_rows}{refused}")
    return read.job(connection, job.id)


def was_inserted(connection: Connection, job: NewJob) -> bool:
    """Whether there is such a job; an insert of it that is still under way is waited for."""
    attempt = connection.begin_nested()
    # Where its commit was sent, and the answer lost, only this waits for the outcome.
    is_missing = _insert_row(connection, job)
    attempt.rollback()
    return not is_missing and read.is_there(connection, job.id)


def _insert_row(connection: Connection, job: NewJob) -> bool:
    """Insert its row of `jobs`; False if there is one of its id, or of its idempotency key."""
    return inserted_unless_there(connection, jobs, _job_values(job))


def _submitted_before(connection: Connection, job: NewJob) -> JobRecord | None:
    """The job of the same idempotency key, if there is one.

    Raises:
        KeyReused: it is not the same job.
    """
    query = select(jobs).where(jobs.c.idempotency_key == job.idempotency_key)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    before = job_record(row)
    if before.fingerprint == job.fingerprint:
        return before
    ours = (job.model, dict(job.options), job.seed)
    theirs = (before.model, dict(before.options), before.seed)
    names = ("model", "options", "seed")
    other = [n for n, a, b in zip(names, ours, theirs, strict=True) if a != b] or ["input"]
    raise KeyReused(
        f"the idempotency key {job.idempotency_key!r} is that of job {before.id}, which has "
        f"another {' and another '.join(other)}; use a new key for a new job"
    )


def insert_plan(connection: Connection, job_id: str, version: int, plan: Plan) -> None:
    """Insert the windows and chunks of a version."""
    chunks_left = Counter(chunk.window for chunk in plan.chunks)
    window_rows = (
        {
            "job_id": job_id,
            "version": version,
            "ordinal": window.ordinal,
            "first_row": window.first_row,
            "rows": window.rows,
            "rejected": window.rejected,
            "base": window.base,
            "chunks_left": chunks_left[window.ordinal],
            "lease_epoch": 0,
        }
        for window in plan.windows
    )
    for batch in _batches(window_rows):
        connection.execute(insert(windows), batch)
    chunk_rows = (
        {
            "id": chunk_id(job_id, version, chunk.ordinal),
            "ordinal": chunk.ordinal,
            "window_ordinal": chunk.window,
            "rows": chunk.rows,
        }
        for chunk in plan.chunks
    )
    new_chunk = insert(chunks).values(
        job_id=job_id,
        version=version,
        state=ChunkState.QUEUED,
        lease_epoch=0,
        wake_at=database_now(),
        sends=0,
        **count_values(ZERO),
    )
    for batch in _batches(chunk_rows):
        connection.execute(new_chunk, batch)


def _job_values(job: NewJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "state": JobState.QUEUED,
        "model": job.model,
        "input_uri": job.input_uri,
        "folder": job.folder,
        "options": dict(job.options),
        "seed": job.seed,
        "priority": job.priority,
        "version": 1,
        "input_path": job.plan.input_path,
        "total_rows": job.plan.total_rows,
        "chunks_total": len(job.plan.chunks),
        "chunks_left": len(job.plan.chunks),
        **count_values(Counts(failed=job.plan.rejected)),
        "chunks_done": 0,
        "rows_at_start": job.plan.rejected,
        "tokens_at_start": 0,
        "lease_epoch": 0,
        "created_at": database_now(),
        "deadline_at": job.deadline_at,
        "fingerprint": job.fingerprint,
        "idempotency_key": job.idempotency_key,
        "notify_urls": list(job.notify_urls) or None,
    }


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(rows, BATCH)):
        yield batch
