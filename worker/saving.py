"""What a run writes into the storage, as soon as the storage lets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from jobs.errors import StorageUnavailable
from worker.chunk_run import ChunkRun
from worker.storage_watch import StorageWatch

_T = TypeVar("_T")


class Saver:
    """Writes for the runs of a worker; their answers wait in memory meanwhile.

    Threads may share it.

    Args:
        handing_back: set once chunks are to be left at once; nothing is waited for then.
    """

    def __init__(self, watch: StorageWatch, handing_back: threading.Event) -> None:
        self._watch = watch
        self._handing_back = handing_back

    def patiently(self, run: ChunkRun, name: str, action: Callable[[], _T]) -> _T:
        """Do something with the storage as soon as it lets us.

        Args:
            name: of what is done, for `StorageWatch`.

        Raises:
            StorageUnavailable: the chunk had to be left before.
        """

        def leave(pause: float) -> bool:
            return self._handing_back.wait(pause) or run.is_lost

        return self._watch.until_done(name, run.lease.job_id, action, leave)

    def save(self, run: ChunkRun) -> None:
        """Write the finished rows of a run to its spool, however long that takes.

        Raises:
            StorageUnavailable: the chunk had to be left before.
        """
        self.patiently(run, _spool_of(run), run.flush)

    def save_due(self, runs: Callable[[], Iterable[ChunkRun]]) -> None:
        """Write what the storage takes now; called every few seconds.

        Args:
            runs: those that the worker has at the moment.
        """
        self._watch.probe()
        for run in runs():
            name = _spool_of(run)
            if not self._watch.is_due(name):
                continue
            try:
                run.flush()
            except StorageUnavailable as error:
                self._watch.refused(name, run.lease.job_id, error)
                if run in runs():
                    continue
            self._watch.worked(name)

    def forget(self, run: ChunkRun) -> None:
        """Nothing of a run waits for the storage any more."""
        self._watch.worked(_spool_of(run))


def _spool_of(run: ChunkRun) -> str:
    return f"spool of {run.lease.chunk_id}"
