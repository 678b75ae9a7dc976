"""Sending what is due."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs import __version__
from jobs.notifications.attempts import MAX_ATTEMPTS, is_final, is_taken, seconds_of, wait_after
from jobs.notifications.message import message
from jobs.notifications.post import Answer, NotSent, post
from jobs.notifications.signing import signature
from jobs.notifications.turns import Turn, Turns, host_of
from jobs.notifications.urls import refusal
from jobs.records.evaluations import NotificationRecord
from jobs.settings import Settings
from jobs.shown_urls import shown_webhook
from jobs.storage import Storage
from jobs.store import Store

log = logging.getLogger("pagemill.notifications")

POST_SECONDS = 10.0
# Until an attempt is given up for dead, whose sender said nothing more of it. Looking up a host
# comes on top of the seconds of a request.
CLAIM_SECONDS = 60.0
AT_ONCE = 8  # requests

Post = Callable[[str, bytes, Mapping[str, str], float], Answer]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of an attempt.

    Attributes:
        error: why it was not taken; None if it was.
        again_in: seconds until the next attempt; None if there is none.
        silent: there was no answer at all, so it is not for this message alone.
    """

    error: str | None = None
    again_in: float | None = None
    silent: bool = False


class Deliverer:
    """Sends what is due in the outbox; any number of processes may do it at once.

    What is sent at least once is taken at least once: who is killed between the answer and the
    note of it leaves it to be sent again, under the same id.

    Attributes:
        delivered: notifications that were taken.
        failures: attempts that were in vain.
        given_up: notifications that are not tried again.
    """

    def __init__(
        self, settings: Settings, store: Store, storage: Storage, post: Post = post
    ) -> None:
        self.delivered = self.failures = self.given_up = 0
        self._settings = settings
        self._store = store
        self._storage = storage
        self._post = post
        self._counting = threading.Lock()
        self._leaving = False

    def leave(self) -> None:
        """Begin no more attempts; those that were begun come to their end."""
        self._leaving = True

    def deliver_due(self, subject: str | None = None) -> None:
        """Send all that is due now, each once, and the hosts in turn.

        A host that says nothing is left: what else is due to it is put off as if it had been
        sent, too. So are few attempts in vain, however much is due to it.

        Args:
            subject: only what is told of this.

        Raises:
            DatabaseError: it cannot be reached; what was sent meanwhile may be sent again.
        """
        while not self._leaving:
            turns = Turns(self._store.due_notifications(subject))
            if not turns:
                return
            errors: list[Exception] = []
            threads = [
                threading.Thread(target=self._serve, args=(turns, subject, errors), daemon=True)
                for _ in range(min(len(turns), AT_ONCE) - 1)
            ]
            for thread in threads:
                thread.start()
            self._serve(turns, subject, errors)
            for thread in threads:
                thread.join()
            if errors:
                raise errors[0]

    def _serve(self, turns: Turns, subject: str | None, errors: list[Exception]) -> None:
        """Send one after the other."""
        try:
            while (turn := turns.take()) is not None and not self._leaving:
                self._send(turn, turns, subject)
        except Exception as error:
            errors.append(error)
        finally:  # there is nothing left to take, or something ended it that ends all of it
            turns.end()

    def _send(self, turn: Turn, turns: Turns, subject: str | None) -> None:
        outcome = _Outcome()
        try:
            told = self._store.claim_notification(CLAIM_SECONDS, subject, turn.id)
            if told is not None:
                outcome = self._outcome(told)
                self._settle(told, outcome)
        finally:
            left = turns.over(turn, outcome.silent)
        if left:
            self._put_off(turn.host, subject, outcome.error)

    def _put_off(self, host: str, subject: str | None, error: str | None) -> None:
        """Take one attempt that met silence for those of all else that is due to that host."""
        number = self._store.put_off_notifications(
            lambda url: host_of(url) == host,
            f"{error}, when another one was sent to its host",
            lambda attempts: wait_after(attempts),
            subject,
        )
        log.info(
            "%s: %s; %d others that are due to it are put off", host, error, number,
            extra={"event": "notifications_put_off", "host": host, "notifications": number},
        )  # fmt: skip

    def _outcome(self, told: NotificationRecord) -> _Outcome:
        # Checked again: whoever wrote the URL into SQL may not know of the hosts.
        reason = refusal(told.url, self._settings.webhook_hosts)
        if reason is not None:
            return _Outcome(reason)
        if told.attempts > MAX_ATTEMPTS:
            return _Outcome(told.error or "all its senders ended before they heard of an answer")
        wait = wait_after(told.attempts)
        try:
            answer = self._post(told.url, *self._request(told), POST_SECONDS)
        except NotSent as error:
            return _Outcome(str(error), wait, silent=True)
        if is_taken(answer.status):
            return _Outcome()
        if is_final(answer.status):
            return _Outcome(f"HTTP {answer.status}: it wants no more of it")
        said = f"HTTP {answer.status}"
        if 300 <= answer.status < 400:
            said += ": redirects are not followed; name the URL that it leads to"
        return _Outcome(said, wait_after(told.attempts, seconds_of(answer.retry_after)))

    def _request(self, told: NotificationRecord) -> tuple[bytes, dict[str, str]]:
        body = message(told, self._storage.root)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"pagemill/{__version__}",
            "Pagemill-Event": told.event,
            "Pagemill-Delivery": told.id,
        }
        if secrets := self._settings.webhook_secrets:
            headers["Pagemill-Signature"] = signature(body, secrets, int(time.time()))
        return body, headers

    def _settle(self, told: NotificationRecord, outcome: _Outcome) -> None:
        """Write down what became of an attempt."""
        error, again_in = outcome.error, outcome.again_in
        whose = f"{told.event} of {told.subject} to {shown_webhook(told.url)}"
        if error is None:
            self._store.notification_delivered(told.id)
            self._count("delivered")
            log.info("%s: taken", whose, extra={"event": "notified", "notification": told.id})
            return
        self._count("failures")
        if not self._store.notification_not_delivered(told, error, again_in):
            return  # others went on with it
        if again_in is None:
            self._count("given_up")
            log.warning(
                "%s: given up after %d attempts: %s; `pagemill notifications --send-again %s` "
                "sends it once more", whose, told.attempts, error, told.id,
                extra={
                    "event": "notification_failed",
                    "notification": told.id, "attempts": told.attempts,
                },
            )  # fmt: skip
            return
        log.info(
            "%s: %s; again in %.0f s", whose, error, again_in,
            extra={
                "event": "notification_delayed",
                "notification": told.id, "attempts": told.attempts,
            },
        )  # fmt: skip

    def _count(self, name: str) -> None:
        with self._counting:
            setattr(self, name, getattr(self, name) + 1)
