"""When a worker goes, and how."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from jobs.errors import DatabaseUnavailable
from worker.runtime import Worker

log = logging.getLogger("pagemill.worker")

LOOK_SECONDS = 0.2  # how quickly a signal is obeyed
ASK_SECONDS = 1.0  # between two questions whether the job has ended
# How long chunks may take to be handed back. A database that hangs answers nobody, and no thread
# of ours can be told to wait no longer.
HANDING_BACK_SECONDS = 60.0


class Leave:
    """Decides when the worker goes, and how.

    The first SIGTERM or Ctrl-C drains: chunks that are being worked on are finished, no other
    is begun. The second hands them back at once; finished rows are in the spool, and whoever
    claims the chunks next computes only the rest.

    Args:
        stop_consuming: ends the loop that takes messages; it may be called again and again.
        end_at_once: ends the process, where chunks cannot be handed back.
    """

    def __init__(
        self,
        worker: Worker,
        stop_consuming: Callable[[], None],
        end_at_once: Callable[[], None],
    ) -> None:
        self.consuming = False
        self._signals = self._obeyed = 0
        self._worker = worker
        self._stop_consuming = stop_consuming
        self._end_at_once = end_at_once
        self._parent = os.getppid()
        self._orphaned = False
        self._asked_at = float("-inf")

    def on_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._signalled)
        signal.signal(signal.SIGINT, self._signalled)

    def look(self) -> None:
        """Leave when there is no reason to stay; called a few times a second."""
        worker = self._worker
        options = worker.options
        if worker.failure is not None:
            self._go()
        elif self._signals > self._obeyed:
            self._obey()
        elif options.watch_parent and not self._orphaned and os.getppid() != self._parent:
            self._orphaned = True
            log.warning(
                "the process that started this worker is gone; handing chunks back",
                extra={"event": "handing_back"},
            )
            self._hand_back()
            self._go()
        elif options.exit_when_done is not None and self._has_ended(options.exit_when_done):
            self._go()

    def _has_ended(self, job_id: str) -> bool:
        if time.monotonic() - self._asked_at < ASK_SECONDS:
            return False
        self._asked_at = time.monotonic()
        try:
            return self._worker.store.job(job_id).state.terminal
        except DatabaseUnavailable:  # of which the heartbeat tells
            return False

    def _obey(self) -> None:
        self._obeyed = self._signals
        held = self._worker.held
        if self._signals == 1:
            log.info(
                "draining: %d chunks are finished first; a second signal hands them back at once",
                held, extra={"event": "draining", "chunks_held": held},
            )  # fmt: skip
        else:
            log.info(
                "handing %d chunks back", held,
                extra={"event": "handing_back", "chunks_held": held},
            )  # fmt: skip
            self._hand_back()
        self._go()

    def _hand_back(self) -> None:
        at_the_latest = threading.Timer(HANDING_BACK_SECONDS, self._end_at_once)
        at_the_latest.daemon = True
        at_the_latest.start()
        self._worker.hand_back()

    def _go(self) -> None:
        self._worker.draining.set()
        self._stop_consuming()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if not self.consuming:
            raise SystemExit(0)  # nothing is leased yet
        # No lock may be taken and nothing logged here: `look` sees it a moment later.
        self._signals += 1


def end_at_once() -> None:
    """End as `kill -9` would: the leases run out, and what was spooled is kept."""
    log.error(
        "chunks could not be handed back in %.0f s; this worker ends now, and its leases run out",
        HANDING_BACK_SECONDS, extra={"event": "ended_at_once"},
    )  # fmt: skip
    os._exit(1)
