"""Celery messages that wake workers.

A message names a job and a chunk and nothing else; what is true stands in SQL. So it may be
lost, doubled or late: the sweeper sends it again, and a claim decides who works on what.

Each model has a queue of its own, since a worker can use a message for its own model only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from celery import Celery

from jobs.broker_url import parse_broker_url
from jobs.errors import BrokerError
from jobs.records import WakeUp
from jobs.settings import Settings
from jobs.shown_urls import scrubbed

RUN_CHUNK = "pagemill.run_chunk"

# Seconds until a broker that does not answer counts as away. A reply to the blocking pop of a
# worker comes after one second at the latest.
CONNECT_SECONDS = 2.0
REPLY_SECONDS = 3.0

ENOUGH_WAITING = 100  # messages in a queue, whatever the number of queued chunks
_LONGEST_MODEL = 200


def make_app(settings: Settings) -> Celery:
    """The Celery app of a deployment, configured the same for those who send and who work."""
    broker = parse_broker_url(settings.broker_url)
    app = Celery("pagemill", broker=broker.url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,  # SQL is the result store
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        # A worker outlives its broker, whatever it is that fails there.
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        broker_use_ssl=broker.tls,
        broker_transport_options={**_transport_options(settings), **broker.options},
    )
    return app


def queue_of(model: str) -> str:
    """The name of a model's queue."""
    if len(model) > _LONGEST_MODEL:
        model = hashlib.sha256(model.encode()).hexdigest()
    return f"chunks.{model}"


class Sender:
    """Sends wake-ups over one connection, made when it is first needed. For one thread.

    Every method raises `BrokerError` if the broker cannot be reached or refuses; the next call
    connects anew.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = make_app(settings)
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def waiting(self, model: str) -> int:
        """How many messages wait in a model's queue."""
        with self._connected() as connection:
            declared = connection.default_channel.queue_declare(queue_of(model))
            return int(declared.message_count)

    def server(self) -> Mapping[str, Any]:
        """What the Redis says of itself (`redis_version`, `role`, …)."""
        with self._connected() as connection:
            said: Mapping[str, Any] = connection.default_channel.client.info()
            return said

    def top_up(self, model: str, due: Callable[[int], Sequence[WakeUp]]) -> int:
        """Send until enough messages wait in a model's queue; returns how many wait then.

        Args:
            due: gives at most so many of the wake-ups that are due. It is asked only if the
                broker answers, since what it names counts as sent.
        """
        waiting = self.waiting(model)
        if waiting >= ENOUGH_WAITING:
            return waiting
        wake_ups = due(ENOUGH_WAITING - waiting)
        self.send(wake_ups)
        return waiting + len(wake_ups)

    def send(self, wake_ups: Sequence[WakeUp]) -> None:
        """Send a message for each chunk."""
        with self._connected() as connection:
            producer = self._app.amqp.Producer(connection, auto_declare=False)
            for wake_up in wake_ups:
                send(self._app, wake_up, producer=producer)

    def close(self) -> None:
        self._disconnect()
        self._app.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            if self._connection is None:
                self._connection = self._app.connection_for_write()
            self._connection.default_channel  # noqa: B018 (it connects)
            yield self._connection
        except Exception as error:  # whatever a broker's client raises
            self._disconnect()
            said = str(error).strip().rstrip(".") or type(error).__name__
            said = scrubbed(said, self._settings.broker_url)
            raise BrokerError(
                f"the broker {self._settings.shown_broker_url} cannot be used: {said}"
            ) from error


def send(app: Celery, wake_up: WakeUp, **options: Any) -> None:
    """Send one wake-up."""
    app.send_task(
        RUN_CHUNK,
        kwargs={"job_id": wake_up.job_id, "chunk_id": wake_up.chunk_id},
        queue=queue_of(wake_up.model),
        priority=message_priority(wake_up.priority),
        retry=False,
        **options,
    )


def wake_workers(settings: Settings, model: str, due: Callable[[int], Sequence[WakeUp]]) -> None:
    """Wake workers of a model for the chunks that are due; see `Sender.top_up`.

    Without a broker no message would leave this process: none is sent, and workers find the
    chunks in the job tables.

    Raises:
        BrokerError: the broker cannot be reached, or refuses.
    """
    if settings.has_broker:
        with Sender(settings) as sender:
            sender.top_up(model, due)


def message_priority(job_priority: int) -> int:
    """0 to 9, and Redis serves 0 first, for the priority of a job, where more is more."""
    if job_priority < 0:
        return 9
    if job_priority == 0:
        return 6
    return 3 if job_priority < 10 else 0


def _transport_options(settings: Settings) -> dict[str, object]:
    if not settings.has_broker:
        return {"polling_interval": 0.1}  # the in-process transport is polled
    return {
        # All keys of a deployment begin so, those of unacknowledged messages too: other Celery
        # programs on the same Redis have a shorter visibility timeout perhaps.
        "global_keyprefix": f"{settings.queue}:",
        "queue_order_strategy": "priority",
        "priority_steps": [0, 3, 6, 9],
        "socket_keepalive": True,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": REPLY_SECONDS,
        "health_check_interval": 10,
        "max_retries": 0,  # whoever sends has better to do than to wait for a broker
    }
