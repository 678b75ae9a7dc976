"""What a database clock that was put back leaves behind: times that lie too far ahead.

A lease that was taken before the clock went back a day would keep a dead worker's chunk for that
day. Such times are cut to what they may be at most from now on, and not taken as passed: whoever
is alive renews his lease long before it runs out, and loses nothing; those of the dead run out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Column, ColumnElement, Connection, Table, select, update

from jobs.evaluation_tables import (
    EVALUATION_IS_OPEN,
    NOTIFICATION_IS_PENDING,
    evaluations,
    notifications,
)
from jobs.settings import LONGEST_LEASE_SECONDS
from jobs.sqltypes import database_now
from jobs.states import JobState
from jobs.tables import CHUNK_IS_RUNNING, WINDOW_IS_UNMERGED, chunks, jobs, windows

# Longer than the longest wait between two attempts (`jobs.notifications.attempts`).
_LONGEST_WAIT_SECONDS = 6 * 3600.0


@dataclass(frozen=True)
class _Time:
    """A time that is never far ahead.

    Attributes:
        rows: those in which it is one.
        most: seconds from now, at most.
        cut_to: seconds from now, of one that is further ahead.
    """

    table: Table
    column: Column[object]
    rows: ColumnElement[bool]
    most: float
    cut_to: float

    @property
    def is_too_far(self) -> ColumnElement[bool]:
        return self.rows & (self.column > database_now(self.most))


def cut_times(connection: Connection, lease_seconds: float) -> int:
    """Cut times that lie further ahead than any can; returns how many there were."""
    return sum(
        connection.execute(
            update(time.table)
            .where(time.is_too_far)
            .values({time.column: database_now(time.cut_to)})
        ).rowcount
        for time in _times(lease_seconds)
    )


def are_too_far(connection: Connection, lease_seconds: float) -> bool:
    """Whether there are such times."""
    return any(
        connection.scalar(select(1).select_from(time.table).where(time.is_too_far).limit(1))
        for time in _times(lease_seconds)
    )


def _times(lease_seconds: float) -> list[_Time]:
    leased = {
        chunks: CHUNK_IS_RUNNING,
        windows: WINDOW_IS_UNMERGED,
        jobs: jobs.c.state == JobState.FINALIZING,
        evaluations: EVALUATION_IS_OPEN,
    }
    most = max(LONGEST_LEASE_SECONDS, lease_seconds)
    leases = [
        _Time(table, table.c.lease_expires_at, rows, most, lease_seconds)
        for table, rows in leased.items()
    ]
    look = _Time(evaluations, evaluations.c.look_at, EVALUATION_IS_OPEN, _LONGEST_WAIT_SECONDS, 0.0)
    attempt = _Time(
        notifications, notifications.c.next_at, NOTIFICATION_IS_PENDING, _LONGEST_WAIT_SECONDS, 0.0
    )
    return [*leases, look, attempt]
