"""One thing that is done again and again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.waiting import in_pieces

log = logging.getLogger("pagemill.periodic")

REPEAT_SECONDS = 30.0  # how often an error that stays the same is logged again


class Periodic:
    """Calls `action` every `seconds`, and at once when `nudge` is called.

    An error of the action is logged and the next round comes all the same: a database that is
    away for a minute must not end the heartbeat.

    Attributes:
        failures: rounds that ended with an error.
    """

    def __init__(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self.failures = 0
        self._name = name
        self.seconds = seconds
        self._action = action
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._succeeded_at = time.monotonic()
        self._in_a_row = 0
        self._said = ""
        self._said_at = 0.0

    def start(self) -> None:
        """Do the rounds in a thread of their own."""
        self._succeeded_at = time.monotonic()
        self._thread.start()

    def nudge(self) -> None:
        self._wake.set()

    def stop(self, patience: float | None = None) -> None:
        """Let the round that is going on end; there is none after it.

        Args:
            patience: wait for its end so many seconds at most.
        """
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(patience)

    @property
    def age(self) -> float:
        """Seconds since a round succeeded; since the start, if none has yet."""
        return time.monotonic() - self._succeeded_at

    def run(self) -> None:
        """Do the rounds in the calling thread, until `stop`."""
        while not self._stopped:
            try:
                self._action()
            except Exception as error:
                self._failed(error)
            else:
                self._succeeded()
            in_pieces(self._wake.wait, self.seconds)
            self._wake.clear()

    def _succeeded(self) -> None:
        if self._in_a_row:
            log.info(
                "%s: works again, after %d failures in %.0f s",
                self._name, self._in_a_row, self.age,
                extra={"event": "recovered", "task": self._name, "failures": self._in_a_row},
            )  # fmt: skip
        self._in_a_row = 0
        self._said = ""
        self._succeeded_at = time.monotonic()

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._in_a_row += 1
        said = f"{type(error).__name__}: {error}"
        now = time.monotonic()
        if said == self._said and now - self._said_at < REPEAT_SECONDS:
            return
        self._said, self._said_at = said, now
        log.warning(
            "%s: %s%s", self._name, said,
            f" ({self._in_a_row} times in a row)" if self._in_a_row > 1 else "",
            extra={"event": "failing", "task": self._name, "failures": self._in_a_row},
        )  # fmt: skip
        log.debug("%s", self._name, exc_info=True)
