"""Leases of chunks: claim, renew, hand back, commit.

A lease is won by compare-and-set and carries an epoch, the fencing token: a worker that was
silent for too long, and whose chunk another has claimed, cannot commit it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, case, func, select, update

from jobs.columns import COUNT_NAMES, DEVICE_NAMES
from jobs.errors import JobNotFound
from jobs.records import ChunkLease, Counts, DeviceTime, ErrorTally, Renewal
from jobs.sqltypes import database_now
from jobs.states import HAS_WORK, ChunkState, JobState
from jobs.store import events
from jobs.store.moves import (
    count_off,
    hand_back_chunk,
    lock_job,
    move_job,
    move_leased_chunk,
)
from jobs.store.row_errors import add_errors
from jobs.store.rows import added_counts, count_values, counts_of, device_of, device_values
from jobs.tables import CHUNK_IS_QUEUED, CHUNK_IS_RUNNING, IN_WORKER, chunks, jobs

_MAY_BEGIN = (jobs.c.state.in_(HAS_WORK), jobs.c.paused_at.is_(None))

# Jobs that a claim looks at. The first one has a free chunk, unless others claim at this moment.
CANDIDATES = 100


def jobs_by_turn(model: str | None, *chunk_is_wanted: ColumnElement[bool]) -> Select[Any]:
    """Jobs with a queued chunk that are not paused, in the order in which they are served.

    Higher priority first; then the job with the fewest running chunks, so that equal jobs get
    equal shares of the workers; then the oldest.

    Args:
        model: only jobs of that model.
        chunk_is_wanted: what else a queued chunk has to be.
    """
    of_job = chunks.c.job_id == jobs.c.id
    running = select(func.count()).where(of_job, CHUNK_IS_RUNNING).scalar_subquery()
    query = (
        select(jobs.c.id, jobs.c.state, jobs.c.priority)
        .where(*_MAY_BEGIN, _any_queued(*chunk_is_wanted))
        .order_by(
            jobs.c.priority.desc(),
            # There may be thousands of queued jobs: nothing runs in them, no need to count.
            case((jobs.c.state == JobState.QUEUED, 0), else_=running),
            jobs.c.created_at,
            jobs.c.id,
        )
    )
    return query if model is None else query.where(jobs.c.model == model)


def claim_chunk(
    connection: Connection, worker_id: str, model: str, seconds: float
) -> ChunkLease | None:
    chunk_id = _lock_next(connection, model)
    if chunk_id is None:
        return None
    connection.execute(
        update(chunks)
        .where(chunks.c.id == chunk_id)
        .values(
            state=ChunkState.RUNNING,
            lease_epoch=chunks.c.lease_epoch + 1,
            lease_owner=worker_id,
            lease_expires_at=database_now(seconds),
        )
    )
    chunk = connection.execute(select(chunks).where(chunks.c.id == chunk_id)).one()
    if move_job(
        connection,
        chunk.job_id,
        JobState.IN_PROGRESS,
        started_at=func.coalesce(jobs.c.started_at, database_now()),
    ):
        events.record(connection, chunk.job_id, events.STARTED, f"version {chunk.version}")
    job = connection.execute(select(jobs).where(jobs.c.id == chunk.job_id)).one()
    return _lease(chunk, job)


def renew(
    connection: Connection,
    worker_id: str,
    held: Mapping[str, tuple[int, Counts]],
    seconds: float,
    device: Mapping[str, DeviceTime],
) -> Renewal:
    rows = connection.execute(
        select(
            chunks.c.id,
            chunks.c.lease_epoch,
            *(chunks.c[name] for name in DEVICE_NAMES),
            jobs.c.state,
            jobs.c.paused_at,
        )
        .join(jobs, jobs.c.id == chunks.c.job_id)
        .where(
            chunks.c.id.in_(held),
            chunks.c.lease_owner == worker_id,
            chunks.c.state == ChunkState.RUNNING,
        )
        .order_by(chunks.c.id)
        .with_for_update(of=chunks)
    ).all()
    rows = [row for row in rows if row.lease_epoch == held[row.id][0]]
    ours = {row.id: row.state == JobState.CANCELLING or row.paused_at is not None for row in rows}
    if ours:
        connection.execute(
            update(chunks)
            .where(chunks.c.id == bindparam("chunk_id"))
            .values(
                lease_expires_at=database_now(seconds),
                **{name: bindparam(f"new_{name}") for name in (*COUNT_NAMES, *DEVICE_NAMES)},
            ),
            [
                {
                    "chunk_id": row.id,
                    **{f"new_{k}": v for k, v in count_values(held[row.id][1]).items()},
                    **{
                        f"new_{k}": v
                        for k, v in device_values(device.get(row.id, device_of(row))).items()
                    },
                }
                for row in rows
            ],
        )
    return Renewal(
        lost=frozenset(held.keys() - ours.keys()),
        stopping=frozenset(chunk_id for chunk_id, stops in ours.items() if stops),
    )


def release_chunk(
    connection: Connection, lease: ChunkLease, counts: Counts | None, device: DeviceTime | None
) -> bool:
    try:
        job = lock_job(connection, lease.job_id)
    except JobNotFound:  # it was deleted, long after the lease was lost
        return False
    chunk = connection.execute(select(chunks).where(chunks.c.id == lease.chunk_id)).one()
    counts = counts_of(chunk) if counts is None else counts
    return hand_back_chunk(connection, job, chunk, lease.epoch, counts, device)


def commit_chunk(
    connection: Connection,
    lease: ChunkLease,
    part: str,
    counts: Counts,
    errors: Sequence[ErrorTally],
    device: DeviceTime | None,
) -> bool:
    try:
        lock_job(connection, lease.job_id)
    except JobNotFound:  # it was deleted, long after the lease was lost
        return False
    spent = {} if device is None else device_values(device)
    done = move_leased_chunk(
        connection, lease.chunk_id, lease.epoch, ChunkState.DONE, counts, part=part, **spent
    )
    chunk = connection.execute(select(chunks).where(chunks.c.id == lease.chunk_id)).one()
    if done:
        done_before = jobs.c.chunks_done
        count_off(connection, chunk, chunks_done=done_before + 1, **added_counts(jobs, counts))
        add_errors(connection, lease.job_id, lease.version, IN_WORKER, errors)
        return True
    # The answer of an earlier, successful commit may have been lost on its way.
    return (chunk.state, chunk.lease_epoch, chunk.part) == (ChunkState.DONE, lease.epoch, part)


def models_wanted(connection: Connection) -> list[str]:
    query = select(jobs.c.model).where(*_MAY_BEGIN, _any_queued()).distinct().order_by(jobs.c.model)
    return list(connection.scalars(query))


def _any_queued(*chunk_is_wanted: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether the job has a queued chunk (within a query of `jobs`)."""
    # A subquery with LIMIT is answered from the index, job by job; an EXISTS may be turned into
    # a join that reads all queued chunks.
    found = select(1).where(chunks.c.job_id == jobs.c.id, CHUNK_IS_QUEUED, *chunk_is_wanted)
    return found.limit(1).scalar_subquery().is_not(None)


def _lock_next(connection: Connection, model: str) -> str | None:
    for job in connection.execute(jobs_by_turn(model).limit(CANDIDATES)).all():
        of_job = select(chunks.c.id).where(chunks.c.job_id == job.id).order_by(chunks.c.ordinal)
        if (chunk_id := _lock_chunk(connection, job, of_job)) is not None:
            return chunk_id
    return None


def _lock_chunk(connection: Connection, job: Row[Any, Any], query: Select[str]) -> str | None:
    """Lock the first of some chunks that is queued and that nobody else is about to claim."""
    if job.state == JobState.QUEUED:
        # The claim will move the job, so its lock comes first (see the order in `moves`).
        lock_job(connection, job.id)
    return connection.scalar(
        query.where(CHUNK_IS_QUEUED).limit(1).with_for_update(skip_locked=True)
    )


def _lease(chunk: Row[Any], job: Row[Any]) -> ChunkLease:
    return ChunkLease(
        chunk_id=chunk.id,
        job_id=job.id,
        version=chunk.version,
        ordinal=chunk.ordinal,
        window=chunk.window_ordinal,
        rows=chunk.rows,
        epoch=chunk.lease_epoch,
        owner=chunk.lease_owner,
        model=job.model,
        folder=job.folder,
        input_path=job.input_path,
        options=job.options,
        seed=job.seed,
        priority=job.priority,
        device=device_of(chunk),
    )
