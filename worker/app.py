"""The Celery consumer of a worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from billiard.exceptions import RestartFreqExceeded
from celery import Celery
from celery.worker import WorkController, state

from jobs.settings import Settings
from jobs.wake import RUN_CHUNK, make_app, queue_of
from worker.hostile_queue import Connection

REPEAT_SECONDS = 30.0  # how often Celery's complaint about the broker is logged again


class Consumer:
    """Takes the messages of one model's queue, and runs something for each in a thread.

    A message is only a wake-up: what is really done is decided by a claim in SQL, so a message
    that comes twice, late or never does no harm. Celery keeps the state of its consumer loop in
    its modules, so there is one consumer a process.

    Args:
        concurrency: messages that are dealt with at once.
        name: of this worker; no other has it.
        woken: called for each message, in one of the threads.
        on_connected: called whenever a connection to the broker was made.
    """

    def __init__(
        self,
        settings: Settings,
        model: str,
        concurrency: int,
        name: str,
        woken: Callable[[], None],
        on_connected: Callable[[], None],
    ) -> None:
        self._app = _worker_app(settings, model, woken)
        # The threads pool, since one engine serves all tasks of this process. `WorkController`
        # and not the `celery worker` program: the signals are ours (drain, then hand back).
        self._controller = WorkController(
            app=self._app,
            hostname=f"pagemill@{name}",
            pool_cls="threads",
            concurrency=concurrency,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel=logging.WARNING,
            ready_callback=lambda _: on_connected(),
        )

    def run(self) -> None:
        """Take messages until `stop_consuming`; returns when the running tasks have ended."""
        consumer = self._controller.consumer
        quiet = _OncePerFault(
            (*consumer.connection_errors, *consumer.channel_errors, RestartFreqExceeded)
        )
        loggers = [logging.getLogger(name) for name in _TALKATIVE]
        for logger in loggers:
            logger.addFilter(quiet)
        try:
            self._controller.start()
        finally:
            for logger in loggers:
                logger.removeFilter(quiet)

    @property
    def connected(self) -> bool:
        """Whether the broker can bring messages now, as far as is known."""
        return self._controller.consumer.connection is not None

    def reconnect(self) -> None:
        """Drop the connection and make a new one; may be called from any thread."""
        hub = self._controller.hub
        if hub is not None and self.connected:
            hub.call_soon(_drop_connection)

    def close(self) -> None:
        self._app.close()


def stop_consuming() -> None:
    """Ask the consumer loop to end; may be called from any thread, again and again."""
    state.should_stop = 0


def _worker_app(settings: Settings, model: str, woken: Callable[[], None]) -> Celery:
    app = make_app(settings)
    app.set_default()  # the threads of the pool look their task up in the default app
    app.conf.task_default_queue = queue_of(model)
    app.amqp.Connection = Connection

    @app.task(name=RUN_CHUNK, shared=False)  # type: ignore[untyped-decorator]
    def run(job_id: str, chunk_id: str) -> None:
        woken()

    return app


def _drop_connection() -> None:
    raise ConnectionError("messages wait in the broker, but none came")


# Celery's loggers of lost connections, and of acknowledgements that did not get through.
_TALKATIVE = ("celery.worker.consumer.consumer", "celery.worker.loops", "celery.worker.request")


class _OncePerFault(logging.Filter):
    """Lets what is logged at each attempt through once in a while, as a warning in a line.

    An attempt can fail five times a second, for hours, and does no harm.

    Args:
        faults: errors whose traceback tells nothing.
    """

    def __init__(self, faults: tuple[type[BaseException], ...]) -> None:
        super().__init__()
        self._faults = faults
        self._said: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._said.get(record.msg, float("-inf")) < REPEAT_SECONDS:
            return False
        self._said[record.msg] = now
        if record.exc_info and isinstance(record.exc_info[1], self._faults):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True
