"""Evaluations that workers and beats drive beside their own work, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from jobs.periodic import Periodic
from jobs.settings import Settings
from jobs.store import Store

PATIENCE_SECONDS = 5.0  # with a process that was told to leave
BUSY_SECONDS = 1.0  # until it is looked again whether the process still works


class EvaluationDriver:
    """Looks now and then whether evaluations are due, and starts a process that drives them.

    It is nudged when a job has ended, for which an evaluation may have waited.

    To look costs one small query. The process has a low priority, and ends when nothing is due.

    Args:
        log_format: of the process, `text` or `json`.
    """

    def __init__(
        self, settings: Settings, store: Store, *, log_level: str = "info", log_format: str = "text"
    ) -> None:
        self._settings = settings
        self._store = store
        self._arguments = [log_level, log_format]
        self._process: subprocess.Popen[bytes] | None = None
        self._looks = Periodic("evaluations", settings.sweep_seconds, self.look)

    def start(self) -> None:
        self._looks.start()

    def nudge(self) -> None:
        """Look at once."""
        self._looks.nudge()

    def stop(self, patience: float | None = None) -> None:
        """Look no more, and end the process; what it was at is done again by others.

        Args:
            patience: wait for the end of a look so many seconds at most.
        """
        self._looks.stop(patience)
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def look(self) -> None:
        """Start the process, if it does not run and there is something to do."""
        if self._process is not None and self._process.poll() is None:
            # What becomes due while it ends, it may not see any more.
            self._looks.seconds = BUSY_SECONDS
            return
        self._looks.seconds = self._settings.sweep_seconds
        if self._store.evaluations_due():
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jobs.evaluation", *self._arguments],
                env={**os.environ, **self._settings.to_env()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for us
            )
