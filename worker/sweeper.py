"""What every worker does beside its chunks, so that nothing that was lost stays lost."""

from __future__ import annotations

from collections.abc import Callable

from jobs import finalize
from jobs.deletion import finish_deletions
from jobs.evaluation.background import EvaluationDriver
from jobs.housekeeping import EVERY_SECONDS, keep_house
from jobs.periodic import Periodic
from jobs.schedules.ticker import Ticker
from jobs.sweep import mend
from worker.runtime import Worker


class Sweeper:
    """Looks for work that was lost.

    Chunks whose lease ran out are queued again, overdue jobs expire, windows and jobs that
    are complete are merged and finalized. What is due by a schedule becomes an evaluation, and
    evaluations are driven. Now and then what is kept no longer is removed.

    Args:
        requeued: called when chunks are queued again.
    """

    def __init__(self, worker: Worker, requeued: Callable[[], None]) -> None:
        self._worker = worker
        self._requeued = requeued
        seconds = worker.options.settings.sweep_seconds
        self._sweep = Periodic("sweeper", seconds, self.sweep)
        self._housekeeping = Periodic("housekeeping", EVERY_SECONDS, self.keep_house)
        options = worker.options
        self._evaluations = EvaluationDriver(
            options.settings,
            worker.store,
            log_level=options.log_level,
            log_format=options.log_format,
        )
        # Apart, as it must be on time whatever is merged meanwhile.
        self._ticker = Ticker(worker.store, seconds, self._evaluations.nudge)

    def start(self) -> None:
        self._sweep.start()
        self._ticker.start()
        self._housekeeping.start()
        self._evaluations.start()
        # Who started a worker for one job waits for it, and takes those steps.
        if self._worker.options.exit_when_done is None:
            self._worker.on_finished = self._evaluations.nudge

    def stop(self) -> None:
        self._sweep.stop()
        self._ticker.stop()
        self._housekeeping.stop()
        self._evaluations.stop()

    def sweep(self) -> None:
        worker = self._worker
        if mend(worker.store):
            self._requeued()
        if finalize.drive(worker.store, worker.storage, worker.id):
            worker.on_finished()
        finish_deletions(worker.store, worker.storage)

    def keep_house(self) -> None:
        worker = self._worker
        keep_house(worker.store, worker.storage, worker.options.settings.retention_seconds)
