"""The life of a worker process: load, consume, drain, leave."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from jobs.database import Database
from jobs.errors import JobsError
from jobs.periodic import Periodic
from jobs.storage import Storage
from jobs.store import Store
from jobs.wake import send
from worker.app import consume, make_worker_app, stop_consuming
from worker.errors import WorkerError
from worker.options import WorkerOptions
from worker.runtime import Worker
from worker.sweeper import Sweeper

log = logging.getLogger("pagemill.worker")


def main(arguments: Sequence[str]) -> int:
    """Run a worker until it is told to leave; returns the exit status."""
    options = WorkerOptions.parse(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    for noisy in ("alembic", "celery", "httpx", "kombu"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        return _run(options)
    except (WorkerError, JobsError) as error:
        log.error("%s", error)
        return error.exit_code


def _run(options: WorkerOptions) -> int:
    settings = options.settings
    database = Database(settings.database_url)
    try:
        database.check_revision()
        store = Store(database, lease_seconds=settings.lease_seconds)
        worker = Worker(options, store, Storage(settings.storage_url))
        leave = Leave(worker)
        leave.on_signals()
        try:
            worker.start()
            _consume(worker, leave)
        finally:
            worker.close()
        return worker.failure.exit_code if worker.failure else 0
    finally:
        database.close()


def _consume(worker: Worker, leave: Leave) -> None:
    def run_chunk(chunk_id: str) -> None:
        try:
            worker.run_chunk(chunk_id)
        finally:
            sweeper.nudge()

    app = make_worker_app(worker.options.settings, run_chunk)
    sweeper = Sweeper(worker, lambda job, chunk: send(app, job, chunk))
    watcher = Periodic("watcher", 0.2, leave.look)
    sweeper.start()
    watcher.start()
    leave.consuming = True
    try:
        log.info("worker %s: ready for chunks of %s", worker.id, worker.options.model)
        consume(app, worker.options.concurrency)
    finally:
        watcher.stop()
        sweeper.stop()
        app.close()


class Leave:
    """Decides when the worker goes, and how.

    The first SIGTERM or Ctrl-C drains: chunks that are being worked on are finished, no other
    is begun. The second hands them back at once; finished rows are in the spool, and whoever
    claims the chunks next computes only the rest.
    """

    def __init__(self, worker: Worker) -> None:
        self.consuming = False
        self._signals = self._obeyed = 0
        self._worker = worker
        self._parent = os.getppid()

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
        elif options.watch_parent and os.getppid() != self._parent:
            log.warning("the process that started this worker is gone; handing chunks back")
            worker.hand_back()
            self._go()
        elif (
            options.exit_when_done is not None
            and worker.store.job(options.exit_when_done).state.terminal
        ):
            self._go()

    def _obey(self) -> None:
        self._obeyed = self._signals
        if self._signals == 1:
            log.info(
                "draining: %d chunks are finished first; a second signal hands them back at once",
                self._worker.held,
            )
        else:
            log.info("handing %d chunks back", self._worker.held)
            self._worker.hand_back()
        self._go()

    def _go(self) -> None:
        self._worker.draining.set()
        stop_consuming()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if not self.consuming:
            raise SystemExit(0)  # nothing is leased yet
        # No lock may be taken and nothing logged here: `look` sees it a moment later.
        self._signals += 1
