"""An end to an engine that hangs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.periodic import Periodic
from worker.engine_process import EngineProcess

log = logging.getLogger("pagemill.worker")

LOOK_SECONDS = 5.0


class Watchdog:
    """Kills an engine that owes us a word and says nothing: stuck in a driver, say, or stopped.

    Whoever reads its messages sees it die, as of any other cause. Silence is counted only while
    this process itself runs: after both were frozen for an hour, the engine has its full time.

    Args:
        patience: how many seconds an engine may be silent (see `watch`).
    """

    def __init__(self, patience: float) -> None:
        self._lock = threading.Lock()
        self._engine: EngineProcess | None = None
        self._owes: Callable[[], bool] = bool
        self._patience = patience
        self._silent = 0.0
        self._looked_at = time.monotonic()
        self._look_seconds = min(LOOK_SECONDS, patience / 10)
        self._periodic = Periodic("engine watchdog", self._look_seconds, self._look)

    def start(self) -> None:
        self._periodic.start()

    def stop(self) -> None:
        self._periodic.stop()

    def watch(self, engine: EngineProcess, owes: Callable[[], bool], patience: float) -> None:
        """From now on watch this engine.

        Args:
            owes: whether it should be saying something.
            patience: how many seconds it may be silent then.
        """
        with self._lock:
            self._engine, self._owes, self._patience, self._silent = engine, owes, patience, 0.0

    def forget(self) -> None:
        """Watch nothing."""
        with self._lock:
            self._engine = None

    def heard(self) -> None:
        """The engine said something."""
        with self._lock:
            self._silent = 0.0

    def _look(self) -> None:
        now = time.monotonic()
        passed = min(now - self._looked_at, 2 * self._look_seconds)
        self._looked_at = now
        with self._lock:
            engine = self._engine
            if engine is None or not self._owes():
                self._silent = 0.0
                return
            self._silent += passed
            if self._silent < self._patience:
                return
            self._engine = None
        log.warning(
            "engine %d has said nothing for %.0f s, though it has work: it hangs and is killed",
            engine.pid, self._silent,
            extra={"event": "engine_hung", "engine_pid": engine.pid, "seconds": self._silent},
        )  # fmt: skip
        engine.last_words = f"it hung: it had work and said nothing for {self._silent:.0f} s"
        engine.kill()
