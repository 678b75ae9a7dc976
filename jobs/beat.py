"""What a deployment wants done again and again, in a process of its own.

The sweeper of every worker does the same, so a beat is needed only where jobs must come to their
end, or expire on time, while no worker lives. Everything here is compare-and-set in SQL: any
number of beats, workers and commands may do it at once.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

from jobs import finalize
from jobs.deletion import finish_deletions
from jobs.errors import SettingsError
from jobs.evaluation.background import EvaluationDriver
from jobs.housekeeping import EVERY_SECONDS, keep_house
from jobs.leaving import Leaving
from jobs.notifications.delivering import Deliverer
from jobs.periodic import Periodic
from jobs.schedules.ticker import Ticker
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from jobs.sweep import mend

log = logging.getLogger("pagemill.beat")

PATIENCE_SECONDS = 2.0  # with a database that does not answer, when it is time to leave


class Beat:
    """Mends leases and deadlines, finishes jobs, tells of their ends, and looks at the clock.

    Merging can take minutes, so it has its own thread, which is the caller's: a signal ends it in
    the middle, and what is half written is removed; all of it may be done again by someone else.

    Args:
        leaving: raises in the caller's thread when it is time to go.
        health: told after each round in which nothing failed.
        log_level, log_format: of the processes that it starts.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        storage: Storage,
        leaving: Leaving,
        health: HealthFile | None = None,
        *,
        log_level: str = "info",
        log_format: str = "text",
    ) -> None:
        self._owner = f"beat:{socket.gethostname()}:{os.getpid()}"
        self._store = store.acting_as(self._owner)
        self._storage = storage
        self._leaving = leaving
        self._health = health
        self._tender = Periodic("beat", settings.sweep_seconds, self.tend)
        self._finisher = Periodic("finisher", settings.sweep_seconds, self._finish)
        self._housekeeping = Periodic("housekeeping", EVERY_SECONDS, self.keep_house)
        self._evaluations = EvaluationDriver(
            settings, self._store, log_level=log_level, log_format=log_format
        )
        self._ticker = Ticker(self._store, settings.sweep_seconds, self._evaluations.nudge)
        self._retention = settings.retention_seconds
        deliverer = Deliverer(settings, self._store, storage)
        self._teller = Periodic("notifications", settings.sweep_seconds, deliverer.deliver_due)

    def run(self) -> None:
        """Work until it is time to go.

        Raises:
            ToldToLeave: it is.
        """
        log.info("%s: looking after the jobs, every %g s", self._owner, self._tender.seconds)
        self._tender.start()
        self._ticker.start()
        self._housekeeping.start()
        self._evaluations.start()
        self._teller.start()
        try:
            self._finisher.run()
        finally:
            self._stop(0.0)  # all of them, before any is waited for
            self._stop(PATIENCE_SECONDS)

    def _stop(self, patience: float) -> None:
        until = time.monotonic() + patience
        threads = (self._tender, self._ticker, self._housekeeping, self._teller, self._evaluations)
        for thread in threads:
            thread.stop(max(0.0, until - time.monotonic()))

    def _finish(self) -> None:
        try:
            self.finish()
        finally:
            self._leaving.check()

    def tend(self) -> None:
        """One round of everything that is quick."""
        mend(self._store)
        self._finisher.nudge()
        if self._health is not None:
            self._health.renew()

    def finish(self) -> None:
        """One round of merging windows, publishing jobs, and removing files of deleted ones."""
        if finalize.drive(self._store, self._storage, self._owner):
            self._teller.nudge()
            self._evaluations.nudge()
        finish_deletions(self._store, self._storage)

    def keep_house(self) -> None:
        """Remove what is kept no longer."""
        keep_house(self._store, self._storage, self._retention)


class HealthFile:
    """A file that is as old as the last round that went well; asked by health checks.

    Args:
        sweep_seconds: how often there is a round.

    Raises:
        SettingsError: there is no folder that it can lie in.
    """

    def __init__(self, path: Path, sweep_seconds: float) -> None:
        if not path.parent.is_dir():
            raise SettingsError(f"the health file {path} cannot be written: no such folder")
        self._path = path
        self.most_seconds = 3 * sweep_seconds + 30

    def renew(self) -> None:
        self._path.touch()

    def age(self) -> float | None:
        """Seconds since the last round that went well; None if there was none."""
        try:
            return max(0.0, time.time() - self._path.stat().st_mtime)
        except FileNotFoundError:
            return None
