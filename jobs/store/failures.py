"""Steps of a job that failed with an error that nobody foresaw, or never ended.

How often is counted in the job's events, so that the number outlives the processes that tried,
and people see it.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, func, select

from jobs.errors import JobNotFound
from jobs.records import ChunkLease, MergeLease
from jobs.store import events
from jobs.store.moves import lock_job
from jobs.tables import events as events_table


def count_failure(connection: Connection, lease: MergeLease | ChunkLease, error: str) -> int:
    """Write down a failure; returns how many there were of this step, 0 if the job is gone."""
    try:
        lock_job(connection, lease.job_id)
    except JobNotFound:
        return 0
    events.record(connection, lease.job_id, events.UNFINISHED, _of_step(lease) + error)
    return _count(connection, lease, events.UNFINISHED)


def note_former(connection: Connection, lease: MergeLease, former: str | None) -> MergeLease:
    """Write down that a former holder never told how its try ended; returns the lease with it.

    Args:
        lease: claimed in this transaction.
        former: who held it before and never let it go; None if there is nobody like that.
    """
    if former is None:
        return lease
    events.record(connection, lease.job_id, events.NEVER_ENDED, _of_step(lease) + former)
    never_ended = _count(connection, lease, events.NEVER_ENDED)
    return replace(lease, never_ended=never_ended, former=former)


def _of_step(lease: MergeLease | ChunkLease) -> str:
    return f"version {lease.version}, {lease.step}: "


def _count(connection: Connection, lease: MergeLease | ChunkLease, event: str) -> int:
    return connection.execute(
        select(func.count()).where(
            events_table.c.job_id == lease.job_id,
            events_table.c.event == event,
            events_table.c.detail.startswith(_of_step(lease), autoescape=True),
        )
    ).scalar_one()
