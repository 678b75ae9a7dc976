"""Moves of jobs and chunks between states, as compare-and-set statements.

Order of row locks, kept everywhere so that transactions do not deadlock on PostgreSQL: the job
first, then its windows, then its chunks. Whoever changes `chunks_left` holds the job's lock.

A queued chunk can always be claimed: what stops a job (cancel, expiry, failure) stops its
queued chunks in the same transaction, and no chunk goes back to queued in a job that stops.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, select, update

from jobs.columns import DEVICE_NAMES
from jobs.errors import JobNotFound
from jobs.records import Counts, DeviceTime
from jobs.sqltypes import database_now
from jobs.states import CHUNK_MOVES, HAS_WORK, JOB_MOVES, TERMINAL, ChunkState, JobState
from jobs.store import events
from jobs.store.rows import count_values, device_values
from jobs.tables import CHUNK_IS_HANDED_BACK, CHUNK_IS_RUNNING, chunks, jobs, windows

# Chunks of a state that devices may have computed; each kind has an index, and is of the version
# that is worked on.
_MAY_HAVE_TAKEN_TIME = {
    ChunkState.QUEUED: CHUNK_IS_HANDED_BACK,
    ChunkState.RUNNING: CHUNK_IS_RUNNING,
}


def lock_job(connection: Connection, job_id: str) -> Row[Any]:
    """Read a job's row and hold it until the transaction ends.

    Raises:
        JobNotFound: there is none of that id.
    """
    row = connection.execute(
        select(jobs).where(jobs.c.id == job_id).with_for_update(key_share=True)
    ).one_or_none()
    if row is None:
        raise JobNotFound(f"there is no job {job_id}; `pagemill list` shows those there are")
    return row


def move_job(
    connection: Connection,
    job_id: str,
    target: JobState,
    *conditions: ColumnElement[bool],
    **values: Any,
) -> bool:
    """Move a job to a state, from any state that may go there; False if it is in another.

    A pause ends where no chunk is left to be begun.
    """
    if target not in HAS_WORK:
        values["paused_at"] = None
    sources = [state for state, targets in JOB_MOVES.items() if target in targets]
    moved = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state.in_(sources), *conditions)
        .values(state=target, waiting_for=None, **values)
    )
    return moved.rowcount == 1


def move_leased_chunk(
    connection: Connection,
    chunk_id: str,
    epoch: int,
    target: ChunkState,
    counts: Counts,
    **values: Any,
) -> bool:
    """End the lease of a running chunk; False if it is not running under that epoch."""
    assert target in CHUNK_MOVES[ChunkState.RUNNING]
    moved = connection.execute(
        update(chunks)
        .where(
            chunks.c.id == chunk_id,
            chunks.c.lease_epoch == epoch,
            chunks.c.state == ChunkState.RUNNING,
        )
        .values(state=target, lease_expires_at=None, **count_values(counts), **values)
    )
    return moved.rowcount == 1


def hand_back_chunk(
    connection: Connection,
    job: Row[Any],
    chunk: Row[Any],
    epoch: int,
    counts: Counts,
    device: DeviceTime | None = None,
) -> bool:
    """Take a running chunk from its worker: to the queue, or to its end if the job stops.

    Args:
        job: the job's row, locked.
        device: None leaves it as it was told last.
    """
    spent = {} if device is None else device_values(device)
    # Its worker may be gone that waited; who else waits will say so again.
    wait_no_more(connection, job.id)
    if job.state == JobState.CANCELLING:
        if not move_leased_chunk(connection, chunk.id, epoch, ChunkState.STOPPED, counts, **spent):
            return False
        count_off(connection, chunk)
        return True
    # A wake-up is due at once: whoever is idle shall hear of it.
    return move_leased_chunk(
        connection,
        chunk.id,
        epoch,
        ChunkState.QUEUED,
        counts,
        lease_owner=None,
        wake_at=database_now(),
        sends=0,
        **spent,
    )


def wait_for(connection: Connection, job_id: str, what: str) -> None:
    """Write down what a job waits for; the last word counts."""
    connection.execute(
        update(jobs)
        .where(
            jobs.c.id == job_id,
            jobs.c.state.not_in(TERMINAL),
            jobs.c.waiting_for.is_distinct_from(what),
        )
        .values(waiting_for=what)
    )


def wait_no_more(connection: Connection, job_id: str, what: str | None = None) -> None:
    """A job goes on.

    Args:
        what: only if it waits for that; None is for whatever it waits for.
    """
    waits = jobs.c.waiting_for.is_not(None) if what is None else jobs.c.waiting_for == what
    connection.execute(update(jobs).where(jobs.c.id == job_id, waits).values(waiting_for=None))


def count_off(connection: Connection, chunk: Row[Any], **job_values: Any) -> None:
    """One chunk of a (locked) job has come to its end."""
    connection.execute(
        update(windows)
        .where(
            windows.c.job_id == chunk.job_id,
            windows.c.version == chunk.version,
            windows.c.ordinal == chunk.window_ordinal,
        )
        .values(chunks_left=windows.c.chunks_left - 1)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id == chunk.job_id)
        .values(
            chunks_left=jobs.c.chunks_left - 1,
            waiting_for=None,
            **_with_device_time_of(chunks.c.id == chunk.id),
            **job_values,
        )
    )
    finalize_if_drained(connection, chunk.job_id)


def _with_device_time_of(*ending: ColumnElement[bool]) -> dict[str, Any]:
    """Values for a job's row: its device time, and that of its chunks which end now."""
    return {
        name: jobs.c[name]
        + select(func.coalesce(func.sum(chunks.c[name]), 0.0)).where(*ending).scalar_subquery()
        for name in DEVICE_NAMES
    }


def stop_chunks(connection: Connection, job: Row[Any], *states: ChunkState) -> None:
    """Stop all chunks of a (locked) job that are in one of the states."""
    assert all(ChunkState.STOPPED in CHUNK_MOVES[state] for state in states)
    for state in states:
        spent = _with_device_time_of(chunks.c.job_id == job.id, _MAY_HAVE_TAKEN_TIME[state])
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(**spent))
        connection.execute(
            update(chunks)
            .where(
                chunks.c.job_id == job.id, chunks.c.version == job.version, chunks.c.state == state
            )
            .values(state=ChunkState.STOPPED, lease_expires_at=None)
        )
    open_chunks = select(func.count()).where(
        chunks.c.job_id == windows.c.job_id,
        chunks.c.version == windows.c.version,
        chunks.c.window_ordinal == windows.c.ordinal,
        chunks.c.state.in_((ChunkState.QUEUED, ChunkState.RUNNING)),
    )
    of_job = (windows.c.job_id == job.id, windows.c.version == job.version)
    connection.execute(
        update(windows)
        .where(*of_job, windows.c.chunks_left > 0)
        .values(chunks_left=open_chunks.scalar_subquery())
    )
    left = select(func.coalesce(func.sum(windows.c.chunks_left), 0)).where(*of_job)
    connection.execute(
        update(jobs).where(jobs.c.id == job.id).values(chunks_left=left.scalar_subquery())
    )


def finalize_if_drained(connection: Connection, job_id: str) -> bool:
    """Move a job on to finalizing if none of its chunks is left."""
    moved = move_job(
        connection,
        job_id,
        JobState.FINALIZING,
        jobs.c.chunks_left == 0,
        finalizing_at=database_now(),
    )
    if moved:
        events.record(connection, job_id, events.FINALIZING)
    return moved
