"""The end of a job: its windows are merged, a version is published, or the job fails.

Merging and finalizing may run in any process, so both are leased like chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    Update,
    case,
    exists,
    func,
    select,
    update,
)

from jobs.errors import JobNotFound
from jobs.records import ChunkLease, Counts, ErrorTally, MergeLease
from jobs.sqltypes import database_now
from jobs.states import TERMINAL, ChunkState, JobState
from jobs.store import events, failures, notifications, read
from jobs.store.moves import lock_job, move_job, stop_chunks, wait_no_more
from jobs.store.row_errors import add_errors
from jobs.store.rows import count_values, window_record
from jobs.store.sweep import has_unmerged_windows, lease_is_free
from jobs.tables import IN_WORKER, JOB_HAS_GARBAGE, WINDOW_IS_UNMERGED, chunks, jobs, windows

_END_STATES = {
    None: JobState.COMPLETED,
    "cancelled": JobState.CANCELLED,
    "expired": JobState.EXPIRED,
}


def claim_window(
    connection: Connection, job_id: str, window: int, owner: str, seconds: float
) -> MergeLease | None:
    claimed = _claim(
        connection, windows, owner, seconds,
        windows.c.job_id == job_id,
        windows.c.ordinal == window,
        _of_live_version(),
        windows.c.chunks_left == 0,
        WINDOW_IS_UNMERGED,
    )  # fmt: skip
    if claimed is None:
        return None
    job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
    record = window_record(
        connection.execute(
            select(windows).where(
                windows.c.job_id == job_id,
                windows.c.version == job.version,
                windows.c.ordinal == window,
            )
        ).one()
    )
    lease = MergeLease(
        job_id=job_id,
        version=record.version,
        epoch=record.epoch,
        owner=owner,
        folder=job.folder,
        window=record.window,
        chunks=tuple(read.chunk_records(connection, job_id, record.version, window)),
        stop_reason=job.stop_reason,
    )
    return failures.note_former(connection, lease, claimed.former)


def finish_window(connection: Connection, lease: MergeLease, merged: str) -> bool:
    assert lease.window is not None
    wait_no_more(connection, lease.job_id)
    of_lease = _of_lease(lease)
    finished = connection.execute(
        update(windows)
        .where(*of_lease, _of_live_version(), WINDOW_IS_UNMERGED)
        .values(merged=merged, lease_expires_at=None)
    )
    if finished.rowcount == 1:
        return True
    # The answer of an earlier, successful call may have been lost on its way.
    return connection.scalar(select(windows.c.merged).where(*of_lease)) == merged


def claim_finalization(
    connection: Connection, job_id: str, owner: str, seconds: float
) -> MergeLease | None:
    claimed = _claim(
        connection, jobs, owner, seconds,
        jobs.c.id == job_id,
        jobs.c.state == JobState.FINALIZING,
        ~has_unmerged_windows(),
    )  # fmt: skip
    if claimed is None:
        return None
    job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
    merged = (record.merged for record in read.window_records(connection, job_id, job.version))
    lease = MergeLease(
        job_id=job_id,
        version=job.version,
        epoch=job.lease_epoch,
        owner=owner,
        folder=job.folder,
        stop_reason=job.stop_reason,
        merged=tuple(path for path in merged if path is not None),
    )
    return failures.note_former(connection, lease, claimed.former)


def renew_merge(connection: Connection, lease: MergeLease, seconds: float) -> bool:
    table = jobs if lease.window is None else windows
    renewal = _under(lease).where(table.c.lease_expires_at.is_not(None))
    if lease.window is not None:
        renewal = renewal.where(_of_live_version())
    return connection.execute(renewal.values(lease_expires_at=database_now(seconds))).rowcount == 1


def let_go(connection: Connection, lease: MergeLease) -> None:
    """Note that the try has ended, if not well; the lease runs on, so that others wait."""
    connection.execute(_under(lease).values(lease_owner=None))


def finish_job(
    connection: Connection, lease: MergeLease, counts: Counts, errors: Sequence[ErrorTally]
) -> bool:
    try:
        job = lock_job(connection, lease.job_id)
    except JobNotFound:  # others finished it, and it was deleted
        return False
    ours = (jobs.c.lease_epoch == lease.epoch, jobs.c.version == lease.version)
    end_state = _END_STATES[job.stop_reason]
    finished = job.state == JobState.FINALIZING and move_job(
        connection,
        lease.job_id,
        end_state,
        *ours,
        published_version=lease.version,
        # That of an earlier version may still be there.
        garbage_version=func.coalesce(jobs.c.garbage_version, lease.version),
        finished_at=database_now(),
        lease_expires_at=None,
        **count_values(counts),
    )
    if finished:
        add_errors(connection, lease.job_id, lease.version, IN_WORKER, errors)
        told = f"version {lease.version}, answered: {counts.completed} of {counts.rows}"
        events.record(connection, lease.job_id, end_state, told)
        notifications.tell_end(connection, lease.job_id)
        return True
    # The answer of an earlier, successful call may have been lost on its way.
    return (job.state, job.lease_epoch, job.published_version) == (
        end_state,
        lease.epoch,
        lease.version,
    )


def fail_job(
    connection: Connection,
    job_id: str,
    code: str,
    message: str,
    lease: MergeLease | ChunkLease | None,
    again: bool,
) -> bool:
    """Fail it; True also if an earlier attempt did, whose answer was lost on its way.

    Args:
        again: there was an earlier attempt.
    """
    try:
        job = lock_job(connection, job_id)
    except JobNotFound:  # it had ended, and was deleted
        return False
    if lease is None:
        allowed = jobs.c.state != JobState.FINALIZING
    elif isinstance(lease, ChunkLease):
        allowed = exists().where(
            chunks.c.id == lease.chunk_id,
            chunks.c.lease_epoch == lease.epoch,
            chunks.c.state == ChunkState.RUNNING,
        )
    elif lease.window is None:
        allowed = (jobs.c.state == JobState.FINALIZING) & (jobs.c.lease_epoch == lease.epoch)
    else:
        allowed = exists().where(
            windows.c.job_id == jobs.c.id,
            windows.c.version == jobs.c.version,
            windows.c.version == lease.version,
            windows.c.ordinal == lease.window.ordinal,
            windows.c.lease_epoch == lease.epoch,
            WINDOW_IS_UNMERGED,
        )
    failed = move_job(
        connection,
        job_id,
        JobState.FAILED,
        allowed,
        error_code=code,
        error_message=message,
        finished_at=database_now(),
        lease_expires_at=None,
    )
    if failed:
        # Whoever still runs a chunk learns at the next heartbeat that its lease is lost.
        stop_chunks(connection, job, ChunkState.QUEUED, ChunkState.RUNNING)
        events.record(connection, job_id, events.FAILED, f"{code}: {message}")
        notifications.tell_end(connection, job_id)
    told = (job.state, job.error_code, job.error_message)
    return failed or (again and told == (JobState.FAILED, code, message))


def garbage(connection: Connection) -> list[tuple[str, int]]:
    query = select(jobs.c.id, jobs.c.garbage_version).where(JOB_HAS_GARBAGE).order_by(jobs.c.id)
    return [(row.id, row.garbage_version) for row in connection.execute(query)]


def forget_garbage(connection: Connection, job_id: str, version: int) -> None:
    of_the_next = case((jobs.c.published_version > version, version + 1), else_=None)
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.garbage_version == version)
        .values(garbage_version=of_the_next)
    )


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A lease that was free; `former` held it until it ran out, and never let it go."""

    former: str | None


def _claim(
    connection: Connection,
    table: Table,
    owner: str,
    seconds: float,
    *claimable: ColumnElement[bool],
) -> _Claimed | None:
    """Take the lease in the one row of which that holds, if it is free."""
    claimable = (*claimable, lease_is_free(table))
    before = connection.execute(
        select(table.c.lease_owner, table.c.lease_expires_at).where(*claimable)
    ).one_or_none()
    if before is None:
        return None
    claimed = connection.execute(
        update(table)
        .where(*claimable)
        .values(
            lease_epoch=table.c.lease_epoch + 1,
            lease_owner=owner,
            lease_expires_at=database_now(seconds),
        )
    )
    if claimed.rowcount != 1:
        return None
    return _Claimed(before.lease_owner if before.lease_expires_at is not None else None)


def _under(lease: MergeLease) -> Update:
    """An update of the row that holds a lease, unless others have it by now."""
    return update(jobs if lease.window is None else windows).where(*_of_lease(lease))


def _of_lease(lease: MergeLease) -> tuple[ColumnElement[bool], ...]:
    """What is true of the row that holds a lease, unless others have it by now."""
    if lease.window is None:
        return (jobs.c.id == lease.job_id, jobs.c.lease_epoch == lease.epoch)
    return (
        windows.c.job_id == lease.job_id,
        windows.c.version == lease.version,
        windows.c.ordinal == lease.window.ordinal,
        windows.c.lease_epoch == lease.epoch,
    )


def _of_live_version() -> ColumnElement[bool]:
    """Whether the window is of the version that its job is working on."""
    return exists().where(
        jobs.c.id == windows.c.job_id,
        jobs.c.version == windows.c.version,
        jobs.c.state.not_in(TERMINAL),
    )
