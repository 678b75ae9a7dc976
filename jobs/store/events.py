"""Who did what to a job, and when.

An event goes in with the transaction that it tells of, so it is there if and only if that is. It
outlives its job, so that one can see who deleted it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, delete, exists, insert, select, update

from jobs.actor import this_actor
from jobs.errors import JobNotFound
from jobs.records import EventRecord
from jobs.sqltypes import database_now
from jobs.store import read
from jobs.tables import events, jobs

KEPT_SECONDS = 90 * 24 * 3600.0  # after a job is gone
# Newest events of a job, so that one that is retried for ever stays small. Those that are counted
# (see `jobs.store.failures`) are kept besides: there are but a few of each chunk and each window.
KEPT = 1000
MAX_DETAIL = 500  # characters
MAX_ACTOR = 255

SUBMITTED = "submitted"
STARTED = "started"
PAUSED = "paused"
RESUMED = "resumed"
CANCEL_REQUESTED = "cancel_requested"
DEADLINE_PASSED = "deadline_passed"
REQUEUED = "requeued"
FINALIZING = "finalizing"
UNFINISHED = "unfinished"
NEVER_ENDED = "never_ended"
COMPLETED = "completed"
CANCELLED = "cancelled"
EXPIRED = "expired"
FAILED = "failed"
RETRIED = "retried"
DELETED = "deleted"
COUNTED = (UNFINISHED, NEVER_ENDED)


def record(connection: Connection, job_id: str, event: str, detail: str | None = None) -> None:
    """Write down what the transaction does to a job."""
    connection.execute(
        insert(events).values(
            job_id=job_id,
            at=database_now(),
            actor=_actor(connection),
            event=event,
            detail=_cut(detail),
        )
    )
    of_job = and_(events.c.job_id == job_id, events.c.event.not_in(COUNTED))
    oldest_kept = (
        select(events.c.id).where(of_job).order_by(events.c.id.desc()).offset(KEPT - 1).limit(1)
    )
    connection.execute(delete(events).where(of_job, events.c.id < oldest_kept.scalar_subquery()))


def record_requeued(connection: Connection, job_id: str, chunks: int) -> None:
    """Write down that chunks were lost; those of one run of losses are one event."""
    newest = connection.execute(
        select(events).where(events.c.job_id == job_id).order_by(events.c.id.desc()).limit(1)
    ).one_or_none()
    if newest is None or newest.event != REQUEUED:
        record(connection, job_id, REQUEUED, str(chunks))
        return
    connection.execute(
        update(events)
        .where(events.c.id == newest.id)
        .values(
            at=database_now(), actor=_actor(connection), detail=str(int(newest.detail) + chunks)
        )
    )


def prune(connection: Connection) -> int:
    gone = ~exists().where(jobs.c.id == events.c.job_id)
    return connection.execute(
        delete(events).where(events.c.at <= database_now(-KEPT_SECONDS), gone)
    ).rowcount


def of_job(connection: Connection, job_id: str) -> list[EventRecord]:
    """The events of a job, also of one that is gone if its whole id is given; oldest first."""
    try:
        found = read.job(connection, job_id).id
    except JobNotFound:
        if not (gone := of_gone(connection, job_id)):
            raise
        return gone
    return of_gone(connection, found)


def of_gone(connection: Connection, job_id: str) -> list[EventRecord]:
    """The events of that very id, whether there is such a job or not."""
    query = select(events).where(events.c.job_id == job_id).order_by(events.c.id)
    return [EventRecord(**row._mapping) for row in connection.execute(query)]


def _actor(connection: Connection) -> str:
    """Who opened the connection (see `Database.acting_as`)."""
    actor: Any = connection.get_execution_options().get("actor")
    return (actor or this_actor())[:MAX_ACTOR]


def _cut(detail: str | None) -> str | None:
    if detail is None or len(detail) <= MAX_DETAIL:
        return detail
    return f"{detail[: MAX_DETAIL - 1]}…"
