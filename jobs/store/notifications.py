"""What has to be told to a URL, until it is taken there or given up.

A notification goes in with the transaction that it tells of, so it is there if and only if that
is. It outlives what it tells of: a job that is deleted has ended all the same.

Who sends one has claimed it before: that counts an attempt and puts the next one off, so that no
other process sends the same attempt, and one whose sender died is sent again. Times are those of
the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, or_, select, update

from jobs.errors import NotificationNotFound
from jobs.evaluation_tables import NOTIFICATION_IS_PENDING, notifications
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


def is_due(connection: Connection, subject: str | None) -> bool:
    """Whether there is something to send now."""
    return connection.scalar(select(notifications.c.id).where(*_due(subject)).limit(1)) is not None


def claim(connection: Connection, subject: str | None, seconds: float) -> NotificationRecord | None:
    """Begin the next attempt of the one that is due first; None if none is.

    Args:
        subject: only of this.
        seconds: until it is due again, if nothing is heard of this attempt.
    """
    while True:
        due = connection.execute(
            select(notifications)
            .where(*_due(subject))
            .order_by(notifications.c.next_at, notifications.c.id)
            .limit(1)
        ).one_or_none()
        if due is None:
            return None
        claimed = connection.execute(
            update(notifications)
            .where(
                notifications.c.id == due.id,
                notifications.c.attempts == due.attempts,
                *_due(subject),
            )
            .values(attempts=due.attempts + 1, next_at=database_now(seconds))
        )
        if claimed.rowcount == 1:
            return notification(connection, due.id)
        # Another process was faster; it sends this one.


def delivered(connection: Connection, notification_id: str) -> None:
    """It was taken; also by an attempt that was given up for dead."""
    connection.execute(
        update(notifications)
        .where(
            notifications.c.id == notification_id,
            notifications.c.state != NotificationState.DELIVERED,
        )
        .values(state=NotificationState.DELIVERED, delivered_at=database_now(), error=None)
    )


def not_delivered(
    connection: Connection, told: NotificationRecord, error: str, again_in: float | None
) -> bool:
    """An attempt was in vain; False if it was heard of too late, and others went on.

    Args:
        told: as it was claimed.
        again_in: seconds until the next attempt; None gives it up.
    """
    values: dict[str, Any] = {"error": error}
    if again_in is None:
        values["state"] = NotificationState.FAILED
    else:
        values["next_at"] = database_now(again_in)
    noted = connection.execute(
        update(notifications)
        .where(
            notifications.c.id == told.id,
            notifications.c.attempts == told.attempts,
            NOTIFICATION_IS_PENDING,
        )
        .values(**values)
    )
    return noted.rowcount == 1


def send_again(connection: Connection, notification_id: str) -> NotificationRecord:
    """Have it sent at once, with all attempts before it, whatever became of it before.

    Raises:
        NotificationNotFound: there is none of that id.
    """
    connection.execute(
        update(notifications)
        .where(notifications.c.id == notification_id)
        .values(
            state=NotificationState.PENDING,
            attempts=0,
            next_at=database_now(),
            error=None,
            delivered_at=None,
        )
    )
    return notification(connection, notification_id)


def prune(connection: Connection) -> int:
    """Forget those that were delivered or given up long ago; returns how many."""
    return connection.execute(
        delete(notifications).where(
            notifications.c.state != NotificationState.PENDING,
            notifications.c.next_at <= database_now(-KEPT_SECONDS),
        )
    ).rowcount


def _due(subject: str | None) -> list[ColumnElement[bool]]:
    of_subject = [] if subject is None else [notifications.c.subject == subject]
    return [NOTIFICATION_IS_PENDING, notifications.c.next_at <= database_now(), *of_subject]


def _notification(row: Row[Any]) -> NotificationRecord:
    values = dict(row._mapping)
    return NotificationRecord(**values | {"state": NotificationState(values["state"])})
