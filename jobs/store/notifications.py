"""What has to be told to a URL, until it is taken there or given up.

A notification goes in with the transaction that it tells of, so it is there if and only if that
is. It outlives what it tells of: a job that is deleted has ended all the same.

How it gets there is in `jobs.store.sending`. Times are those of the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, func, or_, select

from jobs.errors import NotificationNotFound
from jobs.evaluation_tables import notifications
from jobs.ids import new_id
from jobs.job_shape import job_json
from jobs.records import JobRecord
from jobs.records.evaluations import NotificationRecord, NotificationState
from jobs.sqltypes import database_now
from jobs.store.rows import insert_unless_there, job_record
from jobs.tables import jobs

KEPT_SECONDS = 30 * 24 * 3600.0  # once they are delivered, or given up


def record(
    connection: Connection, subject: str, event: str, url: str, body: Mapping[str, Any]
) -> None:
    """Have something told to a URL, in the transaction that makes it true.

    Call it once a URL. To tell the same event of the same subject again changes nothing, so a
    transaction may be tried again. Whoever delivers finds it by himself: `pagemill beat`, the
    workers, and a command that waits.

    Args:
        subject: the id of an evaluation; a job and its version, `job_…:v1`.
        event: what happened, such as `evaluation.completed`; 32 characters at most.
        url: the whole URL, as it was given.
        body: what becomes `data` of the message (docs/webhooks.md); JSON. A path in `output` is
            relative to the storage, and made absolute by the sender.
    """
    connection.execute(
        insert_unless_there(connection, notifications)
        .values(
            id=new_id("dlv"),
            subject=subject,
            event=event,
            url=url,
            body=dict(body),
            state=NotificationState.PENDING,
            attempts=0,
            next_at=database_now(),
            created_at=database_now(),
        )
        .on_conflict_do_nothing()
    )


def tell_end(connection: Connection, job_id: str) -> None:
    """Have the end of a job, which the transaction brings about, told to its URLs."""
    job = job_record(connection.execute(select(jobs).where(jobs.c.id == job_id)).one())
    if not job.notify_urls:
        return
    published = job.published_version
    body = job_json(job, None if published is None else f"{job.folder}/v{published}")
    for url in job.notify_urls:
        record(connection, subject_of(job), f"job.{job.state}", url, body)


def subject_of(job: JobRecord) -> str:
    """What the end of a job's version is told under."""
    return f"{job.id}:v{job.version}"


def of_end(connection: Connection, job: JobRecord) -> list[NotificationRecord]:
    """How the end of a job's version is told, in the order of its URLs."""
    rows = connection.execute(
        select(notifications).where(notifications.c.subject == subject_of(job))
    )
    found = [_notification(row) for row in rows]
    order = {url: number for number, url in enumerate(job.notify_urls)}
    return sorted(found, key=lambda told: (order.get(told.url, len(order)), told.id))


def listed(
    connection: Connection, about: str | None, failed: bool, limit: int
) -> list[NotificationRecord]:
    """The newest, newest first.

    Args:
        about: a job, whatever its version, or an evaluation, by its whole id.
        failed: only those that were given up.
    """
    query = select(notifications).order_by(
        notifications.c.created_at.desc(), notifications.c.id.desc()
    )
    if about is not None:
        start = f"{about}:v"
        of_version = func.substr(notifications.c.subject, 1, len(start)) == start
        query = query.where(or_(notifications.c.subject == about, of_version))
    if failed:
        query = query.where(notifications.c.state == NotificationState.FAILED)
    return [_notification(row) for row in connection.execute(query.limit(limit))]


def notification(connection: Connection, notification_id: str) -> NotificationRecord:
    """The one of that id.

    Raises:
        NotificationNotFound: there is none.
    """
    row = connection.execute(
        select(notifications).where(notifications.c.id == notification_id)
    ).one_or_none()
    if row is None:
        raise NotificationNotFound(
            f"there is no notification {notification_id!r}; `pagemill notifications` shows those "
            "there are"
        )
    return _notification(row)


def prune(connection: Connection) -> int:
    """Forget those that were delivered or given up long ago; returns how many."""
    return connection.execute(
        delete(notifications).where(
            notifications.c.state != NotificationState.PENDING,
            notifications.c.next_at <= database_now(-KEPT_SECONDS),
        )
    ).rowcount


def _notification(row: Row[Any]) -> NotificationRecord:
    values = dict(row._mapping)
    return NotificationRecord(**values | {"state": NotificationState(values["state"])})
