"""A worker's row in the `workers` table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import jobs
from jobs.errors import JobsError
from jobs.records import WorkerStatus
from jobs.store import Store

log = logging.getLogger("pagemill.worker")

IDLE_SECONDS = 5.0  # between two reports of a worker that has nothing to do


class Presence:
    """Tells in SQL that a worker is there, and how it stands.

    Args:
        status: what it says of itself now.
    """

    def __init__(
        self,
        store: Store,
        worker_id: str,
        model: str,
        concurrency: int,
        status: Callable[[], WorkerStatus],
    ) -> None:
        self._store = store
        self._id = worker_id
        self._model = model
        self._concurrency = concurrency
        self._status = status
        # A worker counts as alive that was seen within a lease.
        self._idle_seconds = min(IDLE_SECONDS, store.lease_seconds / 3)
        self._last: WorkerStatus | None = None
        self._last_at = 0.0

    def beat(self) -> None:
        """Report, unless nothing changes and the last report is young.

        Raises:
            DatabaseError: the database cannot be reached; the next beat tries again.
        """
        status = self._status()
        last = self._last
        idle = (
            last is not None
            and (last.state, last.message) == (status.state, status.message)
            and not (last.chunks_held or status.chunks_held)
        )
        if idle and time.monotonic() - self._last_at < self._idle_seconds:
            return
        self._report(status)

    def leave(self) -> None:
        """Say the last word; a database that does not hear it is no reason to stay."""
        try:
            self._report(self._status())
        except JobsError as error:
            log.warning("the database could not be told that this worker leaves: %s", error)

    def _report(self, status: WorkerStatus) -> None:
        # Reported first in any case: a registration may have got through without its answer.
        if not self._store.report_worker(self._id, status):
            self._store.register_worker(
                self._id, self._model, self._concurrency, jobs.__version__, status
            )
        self._last, self._last_at = status, time.monotonic()
