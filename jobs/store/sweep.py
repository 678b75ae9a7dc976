"""What the sweeper of every worker looks for: lost chunks, overdue jobs, unfinished ends.

Each job is dealt with in a transaction of its own, so that none is long and none locks two
jobs. What was found is looked at again under the lock: several sweepers run at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, exists, or_, select, true, update

from jobs.database import Database
from jobs.errors import JobNotFound
from jobs.records import WakeUp
from jobs.sqltypes import database_now
from jobs.states import HAS_WORK, JobState
from jobs.store import events
from jobs.store.control import stop_job
from jobs.store.leases import jobs_by_turn
from jobs.store.moves import finalize_if_drained, hand_back_chunk, lock_job
from jobs.store.rows import counts_of
from jobs.tables import CHUNK_IS_QUEUED, CHUNK_IS_RUNNING, WINDOW_IS_UNMERGED, chunks, jobs, windows

LIVE = tuple(state for state in JobState if not state.terminal)
MOST_DOUBLINGS = 6


def requeue_expired(database: Database) -> int:
    return _requeue(database, chunks.c.lease_expires_at <= database_now())


def requeue_owned(database: Database, owner_prefix: str) -> int:
    return _requeue(database, chunks.c.lease_owner.startswith(owner_prefix, autoescape=True))


def _requeue(database: Database, condition: ColumnElement[bool]) -> int:
    lost = (CHUNK_IS_RUNNING, condition)
    with database.read() as connection:
        job_ids = set(connection.scalars(select(chunks.c.job_id).where(*lost)))

    def hand_back_all(connection: Connection, job_id: str) -> int:
        job = lock_job(connection, job_id)
        of_job = (
            select(chunks)
            .where(chunks.c.job_id == job_id, *lost)
            .order_by(chunks.c.id)
            .with_for_update()
        )
        found = connection.execute(of_job).all()
        if found:  # before they are handed back: the last one may end the job
            events.record_requeued(connection, job_id, len(found))
        return sum(
            hand_back_chunk(connection, job, chunk, chunk.lease_epoch, counts_of(chunk))
            for chunk in found
        )

    return _for_each(database, job_ids, hand_back_all)


def chunks_to_wake(
    connection: Connection, limit: int, resend_seconds: float, model: str | None, lost: bool
) -> list[WakeUp]:
    """Take chunks for which a wake-up is due, and put off their next one.

    Jobs of one priority take turns, chunk by chunk, as they do in claiming.
    """
    is_due = true() if lost else chunks.c.wake_at <= database_now()
    # Each of these jobs has a chunk that is due, so no more jobs than chunks are needed.
    waiting = connection.execute(jobs_by_turn(model, is_due).limit(limit)).all()
    picked: list[str] = []
    for _, equals in itertools.groupby(waiting, key=lambda job: job.priority):
        room = limit - len(picked)
        if room > 0:
            due = [_due_chunks(connection, job.id, is_due, room) for job in equals]
            picked.extend(itertools.islice(_in_turns(due), room))
    if not picked:
        return []
    locked = connection.execute(
        select(chunks.c.id, chunks.c.job_id, chunks.c.sends, jobs.c.model, jobs.c.priority)
        .join(jobs, jobs.c.id == chunks.c.job_id)
        .where(chunks.c.id.in_(picked), CHUNK_IS_QUEUED, is_due)
        .with_for_update(of=chunks, skip_locked=True)
    )
    taken = sorted(locked, key=lambda chunk: picked.index(chunk.id))
    waits = [
        {
            "chunk_id": chunk.id,
            "wait": resend_seconds * 2 ** min(chunk.sends + 1, MOST_DOUBLINGS),
        }
        for chunk in taken
    ]
    if waits:
        connection.execute(
            update(chunks)
            .where(chunks.c.id == bindparam("chunk_id"))
            .values(sends=chunks.c.sends + 1, wake_at=database_now(bindparam("wait"))),
            waits,
        )
    return [WakeUp(chunk.job_id, chunk.id, chunk.model, chunk.priority) for chunk in taken]


def expire_overdue(database: Database) -> int:
    overdue = (jobs.c.state.in_(HAS_WORK), jobs.c.deadline_at <= database_now())
    with database.read() as connection:
        job_ids = connection.scalars(select(jobs.c.id).where(*overdue).order_by(jobs.c.id)).all()

    def expire(connection: Connection, job_id: str) -> bool:
        job = lock_job(connection, job_id)
        return stop_job(connection, job, "expired", jobs.c.deadline_at <= database_now())

    return _for_each(database, job_ids, expire)


def jobs_to_finalize(database: Database) -> list[str]:
    drained = (
        jobs.c.state.in_((*HAS_WORK, JobState.CANCELLING)),
        jobs.c.chunks_left == 0,
    )
    with database.read() as connection:
        left_behind = connection.scalars(select(jobs.c.id).where(*drained)).all()
    _for_each(database, left_behind, finalize_if_drained)
    ready = (
        select(jobs.c.id)
        .where(jobs.c.state == JobState.FINALIZING, lease_is_free(jobs), ~has_unmerged_windows())
        .order_by(jobs.c.finalizing_at, jobs.c.id)
    )
    with database.read() as connection:
        return list(connection.scalars(ready))


def windows_to_merge(connection: Connection) -> list[tuple[str, int]]:
    query = (
        select(windows.c.job_id, windows.c.ordinal)
        .join(jobs, (jobs.c.id == windows.c.job_id) & (jobs.c.version == windows.c.version))
        .where(
            jobs.c.state.in_(LIVE),  # not NOT IN, which uses no index
            windows.c.chunks_left == 0,
            WINDOW_IS_UNMERGED,
            lease_is_free(windows),
        )
        .order_by(jobs.c.created_at, windows.c.job_id, windows.c.ordinal)
    )
    return [(row.job_id, row.ordinal) for row in connection.execute(query)]


def lease_is_free(table: Any) -> ColumnElement[bool]:
    """Whether nobody holds the merge lease of a window, or of a job."""
    return or_(table.c.lease_expires_at.is_(None), table.c.lease_expires_at <= database_now())


def has_unmerged_windows() -> ColumnElement[bool]:
    """Whether a window of the job's version still has to be merged (within a query of `jobs`)."""
    return exists().where(
        windows.c.job_id == jobs.c.id,
        windows.c.version == jobs.c.version,
        WINDOW_IS_UNMERGED,
    )


def _for_each(
    database: Database, job_ids: Iterable[str], work: Callable[[Connection, str], int]
) -> int:
    """Do the work for each job, in transactions of their own; the sum of what it returns."""

    def for_one(job_id: str) -> int:
        try:
            return database.transact(lambda connection: work(connection, job_id))
        except JobNotFound:  # it ended, and was deleted, since it was found
            return 0

    return sum(for_one(job_id) for job_id in job_ids)


def _due_chunks(
    connection: Connection, job_id: str, is_due: ColumnElement[bool], limit: int
) -> list[str]:
    return list(
        connection.scalars(
            select(chunks.c.id)
            .where(chunks.c.job_id == job_id, CHUNK_IS_QUEUED, is_due)
            .order_by(chunks.c.wake_at, chunks.c.ordinal)
            .limit(limit)
        )
    )


def _in_turns(queues: list[list[str]]) -> Iterator[str]:
    """One item of each queue, then a second one of each, …"""
    for items in itertools.zip_longest(*queues):
        yield from (item for item in items if item is not None)
