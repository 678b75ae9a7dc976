"""Jobs that are removed for good, and what of them is still in the storage.

SQL is first: a row of `deletions` takes the place of the job, in one transaction, and names the
folder that has to go. Whoever finds such a row removes the folder, and then the row. So whatever
is killed in between, no job is ever half there, and no folder stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from jobs.errors import JobNotFound, StateConflict
from jobs.records import JobRecord
from jobs.sqltypes import database_now
from jobs.states import TERMINAL, how_to_end
from jobs.store import events
from jobs.store.moves import lock_job
from jobs.store.rows import job_record
from jobs.tables import chunks, deletions, jobs, row_errors, windows

NAMES_AT_ONCE = 500  # parameters of one statement


def delete_job(
    connection: Connection, job_id: str, detail: str | None, ended_for: float, again: bool
) -> bool:
    """Put a deletion in the place of a job, unless an earlier attempt did.

    Args:
        ended_for: only if it ended at least so many seconds ago.
        again: there was an earlier attempt, whose answer was lost on its way.
    """
    try:
        job = lock_job(connection, job_id)
    except JobNotFound:
        if again and was_deleted(connection, job_id):
            return True
        raise
    if job.state not in TERMINAL:
        raise StateConflict(f"job {job_id} is {job.state}; {how_to_end(job_id, job.state)}")
    long_ago = jobs.c.finished_at <= database_now(-ended_for)
    if ended_for and not connection.scalar(select(long_ago).where(jobs.c.id == job_id)):
        return False
    connection.execute(
        insert(deletions).values(job_id=job_id, folder=job.folder, deleted_at=database_now())
    )
    events.record(connection, job_id, events.DELETED, detail)
    for table in (chunks, windows, row_errors):
        connection.execute(delete(table).where(table.c.job_id == job_id))
    connection.execute(delete(jobs).where(jobs.c.id == job_id))
    return True


def was_deleted(connection: Connection, job_id: str) -> bool:
    """Whether there was a job of that id."""
    return any(event.event == events.DELETED for event in events.of_gone(connection, job_id))


def jobs_that_ended(connection: Connection, seconds: float) -> list[JobRecord]:
    query = (
        select(jobs)
        .where(jobs.c.state.in_(TERMINAL), jobs.c.finished_at <= database_now(-seconds))
        .order_by(jobs.c.finished_at, jobs.c.id)
    )
    return [job_record(row) for row in connection.execute(query)]


def known_folders(connection: Connection, names: Sequence[str]) -> set[str]:
    known: set[str] = set()
    for start in range(0, len(names), NAMES_AT_ONCE):
        some = names[start : start + NAMES_AT_ONCE]
        for table in (jobs, deletions):
            known |= set(connection.scalars(select(table.c.folder).where(table.c.folder.in_(some))))
    return known


def unfinished(connection: Connection) -> list[tuple[str, str]]:
    query = select(deletions.c.job_id, deletions.c.folder).order_by(deletions.c.job_id)
    return [(row.job_id, row.folder) for row in connection.execute(query)]


def forget(connection: Connection, job_id: str) -> None:
    connection.execute(delete(deletions).where(deletions.c.job_id == job_id))
