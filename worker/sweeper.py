"""What every worker does beside its chunks, so that nothing that was lost stays lost."""

from __future__ import annotations

from collections.abc import Callable

from jobs import finalize
from jobs.periodic import Periodic
from jobs.sweep import mend
from worker.runtime import Worker

WAKE_SECONDS = 1.0  # how often a worker without a broker looks for work
PRUNE_SECONDS = 3600.0


class Sweeper:
    """Looks for work and for work that was lost.

    Chunks whose lease ran out are queued again, overdue jobs expire, windows and jobs that
    are complete are merged and finalized, workers that left long ago are forgotten, and queued
    chunks get a (new) message. With a broker these are chunks that no message names any more;
    without one it is how this worker finds any work at all, and it asks for as many chunks as it
    has free threads.

    Args:
        send: sends the message that wakes a worker for (job id, chunk id).
    """

    def __init__(self, worker: Worker, send: Callable[[str, str], None]) -> None:
        self._worker = worker
        self._send = send
        settings = worker.options.settings
        self._has_broker = settings.has_broker
        self._sweep = Periodic("sweeper", settings.sweep_seconds, self.sweep)
        self._wake = Periodic(
            "waker",
            settings.sweep_seconds
            if self._has_broker
            else min(WAKE_SECONDS, settings.sweep_seconds),
            self.wake,
        )
        self._prune = Periodic("pruner", PRUNE_SECONDS, self.prune)

    def start(self) -> None:
        self._sweep.start()
        self._wake.start()
        self._prune.start()

    def stop(self) -> None:
        self._sweep.stop()
        self._wake.stop()
        self._prune.stop()

    def nudge(self) -> None:
        """A chunk ended: look for the next one now."""
        self._wake.nudge()

    def sweep(self) -> None:
        worker = self._worker
        if mend(worker.store):
            self.nudge()
        finalize.drive(worker.store, worker.storage, worker.id)

    def wake(self) -> None:
        worker = self._worker
        if worker.draining.is_set():
            return
        if self._has_broker:
            chunks = worker.store.chunks_to_wake()
        else:
            free = worker.options.concurrency - worker.held
            if free <= 0 or worker.options.model not in worker.store.models_wanted():
                return
            chunks = worker.store.chunks_to_wake(free, 0.0, worker.options.model)
        for job_id, chunk_id in chunks:
            self._send(job_id, chunk_id)

    def prune(self) -> None:
        self._worker.store.prune_workers()
