"""Sending what is due in the outbox: each attempt once, by whoever claims it.

To claim one counts an attempt and puts the next one off, so that no other process sends the same
attempt, and one whose sender died is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, select, update

from jobs.evaluation_tables import NOTIFICATION_IS_PENDING, notifications
from jobs.records.evaluations import NotificationRecord, NotificationState
from jobs.sqltypes import database_now
from jobs.store.notifications import notification

PUT_OFF_SECONDS = 60.0  # until a last attempt is tried, at a host that says nothing
_AT_ONCE = 500  # rows that are read, or changed, at a time
_IN_PIECES = {"yield_per": _AT_ONCE}


def is_due(connection: Connection, subject: str | None, notification_id: str | None) -> bool:
    """Whether there is something to send now."""
    found = select(notifications.c.id).where(*_due(subject, notification_id)).limit(1)
    return connection.scalar(found) is not None


def due(connection: Connection, subject: str | None) -> Iterator[tuple[str, str]]:
    """Id and URL of all that is to be sent now.

    Those with the fewest attempts come first, so that what fails again and again keeps nothing
    waiting that has never been tried.
    """
    query = (
        select(notifications.c.id, notifications.c.url)
        .where(*_due(subject))
        .order_by(notifications.c.attempts, notifications.c.next_at, notifications.c.id)
    )
    for row in connection.execute(query, execution_options=_IN_PIECES):
        yield row.id, row.url


def claim(
    connection: Connection, subject: str | None, seconds: float, notification_id: str | None
) -> NotificationRecord | None:
    """Begin the next attempt of the one that is due first; None if none is.

    Args:
        subject: only of this.
        seconds: until it is due again, if nothing is heard of this attempt.
        notification_id: only this one.
    """
    is_due = _due(subject, notification_id)
    while True:
        due = connection.execute(
            select(notifications)
            .where(*is_due)
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
                *is_due,
            )
            .values(attempts=due.attempts + 1, next_at=database_now(seconds))
        )
        if claimed.rowcount == 1:
            return notification(connection, due.id)
        # Another process was faster; it sends this one.


@dataclass(frozen=True, slots=True)
class Batch:
    """Notifications that were tried so often each."""

    attempts: int
    ids: tuple[str, ...]


def to_put_off(
    connection: Connection, theirs: Callable[[str], bool], subject: str | None
) -> list[Batch]:
    """What is due to some URLs, in batches of a size that one statement takes."""
    query = select(notifications.c.id, notifications.c.attempts, notifications.c.url)
    rows = connection.execute(query.where(*_due(subject)), execution_options=_IN_PIECES)
    found: dict[int, list[str]] = {}
    for row in rows:
        if theirs(row.url):
            found.setdefault(row.attempts, []).append(row.id)
    return [
        Batch(attempts, tuple(ids[start : start + _AT_ONCE]))
        for attempts, ids in sorted(found.items())
        for start in range(0, len(ids), _AT_ONCE)
    ]


def put_off(
    connection: Connection, batch: Batch, error: str, wait_after: Callable[[int], float | None]
) -> int:
    """Count an attempt in vain for each that is still due; the last one only puts it off."""
    wait = wait_after(batch.attempts + 1)
    counted = 0 if wait is None else 1
    return connection.execute(
        update(notifications)
        .where(
            notifications.c.id.in_(batch.ids),
            notifications.c.attempts == batch.attempts,
            *_due(None),
        )
        .values(
            attempts=batch.attempts + counted,
            next_at=database_now(PUT_OFF_SECONDS if wait is None else wait),
            error=error,
        )
    ).rowcount


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


def _due(subject: str | None, notification_id: str | None = None) -> list[ColumnElement[bool]]:
    meant = [] if subject is None else [notifications.c.subject == subject]
    if notification_id is not None:
        meant.append(notifications.c.id == notification_id)
    return [NOTIFICATION_IS_PENDING, notifications.c.next_at <= database_now(), *meant]
