"""Queues of a broker into which others may have written what is no message of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty
from typing import Any

import kombu
from redis.exceptions import ResponseError

log = logging.getLogger("pagemill.worker")

LOOK_SECONDS = 0.1
_SHOWN = 200  # characters of what is said of an entry


class Connection(kombu.Connection):  # type: ignore[misc]
    """A connection whose consumers drop what they cannot take, and take what comes next.

    Celery ends its loop at an entry of a queue that is no message, and at a message with headers
    that it cannot work with. A message is only a wake-up, so nothing is lost with one.
    """

    def drain_events(self, **options: Any) -> Any:
        """Take what comes within so many seconds; without a server no longer than a moment.

        Celery waits for two seconds here, and sees only then whether it is to end.
        """
        if options.get("timeout"):
            options["timeout"] = min(options["timeout"], LOOK_SECONDS)
        return super().drain_events(**options)

    def create_transport(self) -> Any:
        transport = super().create_transport()
        if hasattr(transport.Channel, "_brpop_read"):  # Redis; others come from this process alone
            transport.Channel = _tolerant(transport.Channel)
        return transport


def _tolerant(channel: type[Any]) -> type[Any]:
    class Tolerant(channel):  # type: ignore[misc]
        """A channel of Redis; what it pops is gone from the queue, whatever becomes of it."""

        def _brpop_read(self, **options: Any) -> Any:
            try:
                return super()._brpop_read(**options)
            except Empty:
                raise
            except self._of_redis():
                raise
            except Exception as error:  # no JSON, or JSON of another shape
                _tell(error)
                return True

        def basic_consume(
            self, queue: str, no_ack: bool, callback: Callable[[Any], Any], *args: Any, **more: Any
        ) -> Any:
            def take(message: Any) -> None:
                try:
                    callback(message)
                except Exception as error:  # whatever Celery makes of its content
                    if not message.acknowledged:
                        message.reject()  # if it is Redis that fails, this fails too
                    _tell(error)

            return super().basic_consume(queue, no_ack, take, *args, **more)

        def _of_redis(self) -> tuple[type[Exception], ...]:
            """Errors that say something of the server, and nothing of an entry."""
            lost = (e for e in self.connection_errors if e is not KeyError)
            return (*lost, ResponseError)

    return Tolerant


def _tell(error: Exception) -> None:
    said = f"{type(error).__name__}: {error}"[:_SHOWN]
    log.warning(
        "an entry of the queue is no message of ours, and is dropped (%s); see who else writes "
        "into this broker", said, extra={"event": "message_dropped"},
    )  # fmt: skip
