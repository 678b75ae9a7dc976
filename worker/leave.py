"""When a worker goes, and how."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from jobs.errors import DatabaseUnavailable
from jobs.leaving import hang_up
from jobs.periodic import Periodic
from worker.runtime import Worker

log = logging.getLogger("pagemill.worker")

LOOK_SECONDS = 0.2  # how quickly a signal is obeyed
ASK_SECONDS = 1.0  # between two questions whether the job has ended
# How long chunks may take to be handed back, and threads to end. A database that hangs answers
# nobody, and no thread of ours can be told to wait no longer.
HANDING_BACK_SECONDS = 60.0


class Leave:
    """Decides when the worker goes, and how.

    The first SIGTERM, SIGHUP or Ctrl-C drains: chunks that are being worked on are finished, no
    other is begun. The second hands them back at once; finished rows are in the spool, and whoever
    claims the chunks next computes only the rest. A worker that drains and has not reached its
    database for the length of a lease hands back, too: what it held is no longer its own.

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
        self._consuming = False
        self._signals = self._obeyed = 0
        self._worker = worker
        self._stop_consuming = stop_consuming
        self._end_at_once = end_at_once
        self._parent = os.getppid()
        self._orphaned = False
        self._handing_back = False
        self._timer: threading.Timer | None = None
        self._ended = threading.Event()  # the job that it stays for
        self._watcher = Periodic("watcher", LOOK_SECONDS, self.look)
        self._asker = Periodic("end of the job", ASK_SECONDS, self._ask)

    def start(self) -> None:
        """Look for reasons to leave, until `stop`."""
        self._consuming = True
        self._watcher.start()
        if self._worker.options.exit_when_done is not None:
            self._worker.on_finished = self._asker.nudge
            self._asker.start()

    def stop(self) -> None:
        self._watcher.stop()
        self._asker.stop(patience=0.0)  # a database that hangs keeps it

    def on_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, *hang_up()):
            signal.signal(number, self._signalled)

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
        elif self._ended.is_set():
            self._go()
        if worker.draining.is_set() and not self._handing_back and self._is_cut_off():
            log.warning(
                "the database did not answer for the length of a lease; handing chunks back",
                extra={"event": "handing_back"},
            )
            self._hand_back()

    @contextlib.contextmanager
    def soon_over(self) -> Iterator[None]:
        """What is in the block ends within `HANDING_BACK_SECONDS`, or the process does."""
        self._set_timer()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(HANDING_BACK_SECONDS, self._end_at_once)
            self._timer.daemon = True
            self._timer.start()

    def _is_cut_off(self) -> bool:
        look = self._worker.look()
        return look.heartbeat_age > self._worker.options.settings.lease_seconds

    def _ask(self) -> None:
        """In a thread of its own, since a database that hangs must not keep a signal waiting."""
        job_id = self._worker.options.exit_when_done
        assert job_id is not None
        with contextlib.suppress(DatabaseUnavailable):  # of which the heartbeat tells
            if self._worker.store.job(job_id).state.terminal:
                self._ended.set()
                self._watcher.nudge()

    def _obey(self) -> None:
        self._obeyed = self._signals
        held = self._worker.held
        if self._signals == 1:
            log.info("draining: %s", _first(held), extra={"event": "draining", "chunks_held": held})
        else:
            log.info(
                "handing %s back", _chunks(held),
                extra={"event": "handing_back", "chunks_held": held},
            )  # fmt: skip
            self._hand_back()
        self._go()

    def _hand_back(self) -> None:
        self._handing_back = True
        self._set_timer()
        self._worker.hand_back()

    def _go(self) -> None:
        self._worker.draining.set()
        self._stop_consuming()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        # No lock may be taken and nothing logged here: `look` sees it a moment later.
        self._signals += 1
        if not self._consuming:
            # Nothing is leased yet. Whatever is being imported may swallow it, as a bare `except`
            # does; then the signal is obeyed as soon as the model is loaded.
            raise SystemExit(0)


def _first(held: int) -> str:
    if not held:
        return "no chunk is being worked on"
    return (
        f"{_chunks(held)} {'is' if held == 1 else 'are'} finished first; a second signal hands "
        f"{'it' if held == 1 else 'them'} back at once"
    )


def _chunks(number: int) -> str:
    return "1 chunk" if number == 1 else f"{number} chunks"


def end_at_once() -> None:
    """End as `kill -9` would: the leases run out, and what was spooled is kept."""
    log.error(
        "chunks could not be handed back in %.0f s; this worker ends now, and its leases run out",
        HANDING_BACK_SECONDS, extra={"event": "ended_at_once"},
    )  # fmt: skip
    os._exit(1)
