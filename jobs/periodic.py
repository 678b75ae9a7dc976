"""A thread that does one thing again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("pagemill.periodic")


class Periodic:
    """Calls `action` every `seconds`, and at once when `nudge` is called.

    An error of the action is logged and the next round comes all the same: a database that is
    away for a minute must not end the heartbeat.
    """

    def __init__(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self._name = name
        self._seconds = seconds
        self._action = action
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """Let the round that is going on end; there is none after it."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._action()
            except Exception as error:
                log.warning("%s: %s: %s", self._name, type(error).__name__, error)
                log.debug("%s", self._name, exc_info=True)
            self._wake.wait(self._seconds)
            self._wake.clear()
