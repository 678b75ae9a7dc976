"""What is told to URLs, as a part of `Store`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from jobs.database import Database
from jobs.records.evaluations import NotificationRecord
from jobs.store import notifications, sending


class Outbox:
    """The methods of `Store` that send, list and forget notifications."""

    _database: Database

    def due_notifications(self, subject: str | None = None) -> Iterator[tuple[str, str]]:
        """Id and URL of all that is due now; those with the fewest attempts first.

        Args:
            subject: only what is told of this.
        """
        with self._database.read() as connection:
            yield from sending.due(connection, subject)

    def claim_notification(
        self, seconds: float, subject: str | None = None, notification_id: str | None = None
    ) -> NotificationRecord | None:
        """Begin the next attempt to send what is due first; None if nothing is.

        Args:
            seconds: until it is due again, if nothing is heard of this attempt.
            subject: only what is told of this.
            notification_id: only this one.
        """
        with self._database.read() as connection:  # most often, without a write
            if not sending.is_due(connection, subject, notification_id):
                return None
        return self._database.transact(
            lambda c: sending.claim(c, subject, seconds, notification_id)
        )

    def put_off_notifications(
        self,
        theirs: Callable[[str], bool],
        error: str,
        wait_after: Callable[[int], float | None],
        subject: str | None = None,
    ) -> int:
        """Count an attempt in vain for all that is due to some URLs; returns how many there were.

        The last attempt is counted for none: it has to be its own.

        Args:
            theirs: whether a URL is one of them.
            wait_after: seconds until the next attempt after so many; None if there is none.
            subject: only what is told of this.
        """
        with self._database.read() as connection:
            batches = sending.to_put_off(connection, theirs, subject)
        return sum(
            self._database.transact(
                functools.partial(sending.put_off, batch=batch, error=error, wait_after=wait_after)
            )
            for batch in batches
        )

    def notification_delivered(self, notification_id: str) -> None:
        """Its URL has taken it."""
        self._database.transact(lambda c: sending.delivered(c, notification_id))

    def notification_not_delivered(
        self, told: NotificationRecord, error: str, again_in: float | None
    ) -> bool:
        """An attempt was in vain.

        Args:
            told: as it was claimed.
            again_in: seconds until the next attempt; None gives it up.

        Returns:
            False if others have gone on with it: then nothing is noted.
        """
        return self._database.transact(lambda c: sending.not_delivered(c, told, error, again_in))

    def notifications(
        self, about: str | None = None, *, failed: bool = False, limit: int = 50
    ) -> list[NotificationRecord]:
        """The newest, newest first.

        Args:
            about: a job or an evaluation, by its whole id; also one that was deleted.
            failed: only those that were given up.
        """
        with self._database.read() as connection:
            return notifications.listed(connection, about, failed, limit)

    def notification(self, notification_id: str) -> NotificationRecord:
        """The one of that id.

        Raises:
            NotificationNotFound: there is none.
        """
        with self._database.read() as connection:
            return notifications.notification(connection, notification_id)

    def send_again(self, notification_id: str) -> NotificationRecord:
        """Have a notification sent at once, whatever became of it before.

        Raises:
            NotificationNotFound: there is none of that id.
        """
        return self._database.transact(lambda c: sending.send_again(c, notification_id))

    def prune_notifications(self) -> int:
        """Forget notifications that were dealt with 30 days ago; returns how many."""
        return self._database.transact(notifications.prune)
