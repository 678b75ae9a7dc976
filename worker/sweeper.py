"""What every worker does beside its chunks, so that nothing that was lost stays lost."""

from __future__ import annotations

from collections.abc import Callable

from jobs import finalize
from jobs.deletion import finish_deletions
from jobs.periodic import Periodic
from jobs.sweep import mend
from worker.runtime import Worker

PRUNE_SECONDS = 3600.0


class Sweeper:
    """Looks for work that was lost.

    Chunks whose lease ran out are queued again, overdue jobs expire, windows and jobs that
    are complete are merged and finalized, and workers that left long ago are forgotten.

    Args:
        requeued: called when chunks are queued again.
    """

    def __init__(self, worker: Worker, requeued: Callable[[], None]) -> None:
        self._worker = worker
        self._requeued = requeued
        self._sweep = Periodic("sweeper", worker.options.settings.sweep_seconds, self.sweep)
        self._prune = Periodic("pruner", PRUNE_SECONDS, self.prune)

    def start(self) -> None:
        self._sweep.start()
        self._prune.start()

    def stop(self) -> None:
        self._sweep.stop()
        self._prune.stop()

    def sweep(self) -> None:
        worker = self._worker
        if mend(worker.store):
            self._requeued()
        finalize.drive(worker.store, worker.storage, worker.id)
        finish_deletions(worker.store, worker.storage)

    def prune(self) -> None:
        self._worker.store.prune_workers()
