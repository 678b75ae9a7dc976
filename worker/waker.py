"""How a worker comes to its chunks."""

from __future__ import annotations

import logging
import time

from jobs.errors import BrokerError
from jobs.periodic import Periodic
from jobs.records import WakeUp
from jobs.wake import Sender
from worker.app import Consumer
from worker.runtime import Worker
from worker.slots import Slots

log = logging.getLogger("pagemill.worker")

LOOK_SECONDS = 1.0  # how often a worker that gets no messages looks into the database
PROBE_SECONDS = 5.0  # how often it looks whether its broker is back
# A consumer that is not connected for so long, or gets no message though there is work, is of no
# use for the moment.
CONNECTING_SECONDS = 3.0
STARVING_SECONDS = 5.0  # or half as long again as between two sweeps, in which messages are sent


class Waker:
    """Sees to it that the free slots of a worker find queued chunks of its model.

    With a broker, messages bring them, and here it is made sure that there are some: for chunks
    that were never named, and for those whose messages were lost. Without a broker, the only
    messages are those that the worker sends to itself, as many as it has free slots. When a
    broker brings none, whatever the reason, chunks run without messages until one comes: the
    job tables are the queue.
    """

    def __init__(self, worker: Worker, slots: Slots, consumer: Consumer) -> None:
        self._worker = worker
        self._slots = slots
        self._consumer = consumer
        self._settings = worker.options.settings
        self._model = worker.options.model
        self._sender = Sender(self._settings)
        self._periodic = Periodic(
            "waker", min(LOOK_SECONDS, self._settings.sweep_seconds), self.wake
        )
        self._look_at = 0.0
        self._connected_at = self._fed_at = time.monotonic()
        self._trouble: str | None = None
        self._trouble_at = 0.0

    def start(self) -> None:
        self._connected_at = self._fed_at = time.monotonic()
        self._periodic.start()

    def stop(self) -> None:
        self._periodic.stop()
        self._sender.close()

    def nudge(self) -> None:
        """A slot or a chunk is free again: look now."""
        if self._trouble is None:
            self._look_at = 0.0
        self._periodic.nudge()

    def wake(self) -> None:
        """One look."""
        if self._worker.draining.is_set():
            return
        if not self._settings.has_broker:
            self._wake_ourselves()
            return
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._settings.sweep_seconds
            self._tell(self._what_is_wrong())
        if self._trouble is not None and self._is_hungry():
            self._slots.run_aside()

    def _wake_ourselves(self) -> None:
        if not self._is_hungry():
            return
        if self._consumer.connected:
            self._connected_at = time.monotonic()
            self._sender.send(self._due(self._slots.free, resend_seconds=0.0))
        elif time.monotonic() - self._connected_at > CONNECTING_SECONDS:
            self._slots.run_aside()

    def _what_is_wrong(self) -> str | None:
        """Send what is due; why no messages come to this worker, if so."""
        try:
            waiting = self._send_due()
        except BrokerError as error:
            return str(error)
        now = time.monotonic()
        if self._consumer.connected:
            self._connected_at = now
        elif now - self._connected_at > CONNECTING_SECONDS:
            return "the broker is there, but this worker is not connected to it"
        return self._what_the_queue_tells(now, waiting)

    def _what_the_queue_tells(self, now: float, waiting: int) -> str | None:
        """Whether messages come, as far as one can tell."""
        hungry = self._is_hungry()
        silence = now - max(self._fed_at, self._slots.woken_at)
        if hungry and silence > max(STARVING_SECONDS, 1.5 * self._settings.sweep_seconds):
            if waiting:
                self._consumer.reconnect()
            return "the broker is there, but brings no messages to this worker"
        if self._trouble is not None and self._slots.woken_at < self._trouble_at:
            # It is over when a message comes, or when there is nothing left to bring.
            return self._trouble if hungry or self._slots.aside else None
        if not hungry:
            self._fed_at = now
        return None

    def _send_due(self) -> int:
        """How many messages wait now."""
        waiting = self._sender.top_up(self._model, self._due)
        if waiting or not self._slots.free:
            return waiting
        # If anything is queued, then no message is left that would bring it.
        lost = self._due(self._slots.free, lost=True)
        self._sender.send(lost)
        return len(lost)

    def _tell(self, trouble: str | None) -> None:
        now = time.monotonic()
        if trouble is not None:
            self._look_at = now + min(PROBE_SECONDS, self._settings.sweep_seconds)
        if trouble is not None and self._trouble is None:
            self._trouble_at = now
            log.warning(
                "%s; meanwhile chunks are taken from the database", trouble,
                extra={"event": "broker_away"},
            )  # fmt: skip
        elif trouble is None and self._trouble is not None:
            self._fed_at = now
            log.info("the broker is back", extra={"event": "broker_back"})
        self._trouble = trouble

    def _is_hungry(self) -> bool:
        """Whether there is a slot free, and a chunk for it."""
        return self._slots.free > 0 and self._model in self._worker.store.models_wanted()

    def _due(self, limit: int, resend_seconds: float = 60, lost: bool = False) -> list[WakeUp]:
        return self._worker.store.chunks_to_wake(limit, resend_seconds, self._model, lost)
