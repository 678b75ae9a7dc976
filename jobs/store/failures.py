"""Merges and finalizations that failed with an error that nobody foresaw.

How often is counted in the job's events, so that the number outlives the processes that tried,
and people see it.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from jobs.errors import JobNotFound
from jobs.records import MergeLease
from jobs.store import events
from jobs.store.moves import lock_job
from jobs.tables import events as events_table


def count_failure(connection: Connection, lease: MergeLease, error: str) -> int:
    """Write down a failure; returns how many there were of this step, 0 if the job is gone."""
    try:
        lock_job(connection, lease.job_id)
    except JobNotFound:
        return 0
    step = f"version {lease.version}, {lease.step}: "
    events.record(connection, lease.job_id, events.UNFINISHED, step + error)
    return connection.execute(
        select(func.count()).where(
            events_table.c.job_id == lease.job_id,
            events_table.c.event == events.UNFINISHED,
            events_table.c.detail.startswith(step, autoescape=True),
        )
    ).scalar_one()
