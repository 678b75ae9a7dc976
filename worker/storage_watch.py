"""What the storage refuses at the moment, so that nobody asks it again too soon."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jobs.errors import DatabaseError, JobsError, StorageUnavailable
from jobs.store import Store

log = logging.getLogger("pagemill.worker")

FIRST_PAUSE = 0.5  # until it is asked again; twice as long after each refusal
LONGEST_PAUSE = 15.0
REPEAT_SECONDS = 60.0  # how often a refusal that stays the same is logged again

_T = TypeVar("_T")


@dataclass(slots=True)
class _Refusal:
    job_id: str
    waits_for: str
    pause: float
    again_at: float
    probe: Callable[[], object] | None


class StorageWatch:
    """Remembers what was refused, and tells: the log, and the job's row in SQL.

    What is done with the storage has a name here, such as the part of a certain chunk, so that
    one thing that works (a small file, on a disk that is nearly full) does not hide another that
    does not. Threads may share it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._refused: dict[str, _Refusal] = {}
        self._said = ""
        self._said_at = float("-inf")

    @property
    def waits_for(self) -> str | None:
        """What this worker waits for, in a sentence."""
        with self._lock:
            return next((refusal.waits_for for refusal in self._refused.values()), None)

    @property
    def readable(self) -> bool:
        """Whether no probe is outstanding: what a chunk needs could be read the last time."""
        with self._lock:
            return all(refusal.probe is None for refusal in self._refused.values())

    def is_due(self, name: str) -> bool:
        """Whether something may be tried: it was not refused, or not just now."""
        with self._lock:
            refusal = self._refused.get(name)
            return refusal is None or time.monotonic() >= refusal.again_at

    def refused(
        self,
        name: str,
        job_id: str,
        error: StorageUnavailable,
        probe: Callable[[], object] | None = None,
    ) -> float:
        """Something failed; returns the seconds until it may be tried again.

        Args:
            probe: what tells that it would work again, where nobody tries it by itself.
        """
        with self._lock:
            before = self._refused.get(name)
            pause = FIRST_PAUSE if before is None else min(2 * before.pause, LONGEST_PAUSE)
            self._refused[name] = _Refusal(
                job_id, error.waits_for, pause, time.monotonic() + pause, probe
            )
        self._log(job_id, error)
        with contextlib.suppress(DatabaseError):  # the next refusal tells it again
            self._store.wait_for(job_id, error.waits_for)
        return pause

    def worked(self, name: str) -> None:
        """Something was done that may have been refused before, or is not needed any more."""
        with self._lock:
            refusal = self._refused.pop(name, None)
            if refusal is None:
                return
            same = (refusal.job_id, refusal.waits_for)
            if any((r.job_id, r.waits_for) == same for r in self._refused.values()):
                return
            if not self._refused:
                self._said = ""
                log.info("the storage works again", extra={"event": "storage_back"})
        with contextlib.suppress(DatabaseError):  # the next chunk that is done clears it
            self._store.wait_no_more(refusal.job_id, refusal.waits_for)

    def until_done(
        self, name: str, job_id: str, action: Callable[[], _T], leave: Callable[[float], bool]
    ) -> _T:
        """Do something as soon as the storage lets us.

        Args:
            leave: waits so many seconds; true if we have to do without.

        Raises:
            StorageUnavailable: we had to.
        """
        while True:
            try:
                result = action()
            except StorageUnavailable as error:
                if leave(self.refused(name, job_id, error)):
                    self.worked(name)
                    raise
            else:
                self.worked(name)
                return result

    def probe(self) -> None:
        """Ask again for what nobody else asks for; called every few seconds."""
        with self._lock:
            due = [
                (name, refusal)
                for name, refusal in self._refused.items()
                if refusal.probe is not None and time.monotonic() >= refusal.again_at
            ]
        for name, refusal in due:
            assert refusal.probe is not None
            try:
                refusal.probe()
            except StorageUnavailable as error:
                self.refused(name, refusal.job_id, error, refusal.probe)
                continue
            except JobsError:  # not the storage's fault: whoever claims the chunk meets it
                pass
            self.worked(name)

    def _log(self, job_id: str, error: StorageUnavailable) -> None:
        said, now = error.waits_for, time.monotonic()
        with self._lock:
            if said == self._said and now - self._said_at < REPEAT_SECONDS:
                return
            self._said, self._said_at = said, now
        log.warning(
            "waiting for %s (%s)", said, error,
            extra={"event": "storage_away", "job_id": job_id},
        )  # fmt: skip
