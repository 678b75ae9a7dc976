"""The chunks that a worker has, and what became of those that it had."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobs.records import Counts
from worker.chunk_run import ChunkRun, Stop
from worker.requests import lease_of


class Outcome(StrEnum):
    """How a chunk's run ended."""

    DONE = "done"
    HANDED_BACK = "handed_back"
    FENCED = "fenced"  # another worker has it by now; nothing was published here
    FAILED = "failed"  # an error of this worker or of its files


@dataclass(frozen=True, slots=True)
class WorkloadTotals:
    """One look at a workload; sums are since the worker started.

    Attributes:
        rows_done, rows_total: of the chunks held, rows with an outcome and all rows.
        completed, failed: rows that this worker answered, or found that they cannot be. Rows
            that were adopted from the spool of another are not among them.
        outcomes: chunks that ended, by how.
        lease_age: seconds since the oldest lease was taken; 0 without one.
        jobs: whose chunks they are.
    """

    chunks_held: int
    rows_done: int
    rows_total: int
    completed: int
    failed: int
    outcomes: Mapping[Outcome, int]
    lease_age: float
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    run: ChunkRun
    adopted: Counts
    since: float

    def own(self) -> Counts:
        """The rows that were finished here."""
        return self.run.counts() - self.adopted


class Workload:
    """Runs by chunk. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._ended = Counts()
        self._outcomes = dict.fromkeys(Outcome, 0)

    def begin(self, run: ChunkRun) -> None:
        """Take up a run that has only the rows which it adopted.

        A former run of the same chunk is stopped: its lease ran out, and this worker was given
        the chunk again.
        """
        held = _Held(run, run.counts(), time.monotonic())
        with self._lock:
            former = self._held.pop(run.lease.chunk_id, None)
            if former is not None:
                self._ended += former.own()
            self._held[run.lease.chunk_id] = held
        if former is not None:
            former.run.stop(Stop.LEASE_LOST)

    def end(self, run: ChunkRun) -> None:
        """Let go of a run."""
        with self._lock:
            held = self._held.get(run.lease.chunk_id)
            if held is not None and held.run is run:
                self._ended += held.own()
                del self._held[run.lease.chunk_id]

    def spend(self, device_seconds: Mapping[str, float]) -> None:
        """Give the time that the device computed requests to the runs that they are of.

        Requests of runs that were left are nobody's any more.
        """
        runs: dict[tuple[str, int] | None, ChunkRun] = {
            (run.lease.chunk_id, run.lease.epoch): run for run in self.runs()
        }
        for request_id, seconds in device_seconds.items():
            run = runs.get(lease_of(request_id))
            if run is not None:
                run.spend(seconds)

    def count(self, outcome: Outcome) -> None:
        with self._lock:
            self._outcomes[outcome] += 1

    def runs(self) -> list[ChunkRun]:
        with self._lock:
            return [held.run for held in self._held.values()]

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def totals(self) -> WorkloadTotals:
        with self._lock:
            held = list(self._held.values())
            own = sum((h.own() for h in held), self._ended)
            outcomes = dict(self._outcomes)
        now = time.monotonic()
        return WorkloadTotals(
            chunks_held=len(held),
            rows_done=sum(h.run.counts().rows for h in held),
            rows_total=sum(h.run.lease.rows for h in held),
            completed=own.completed,
            failed=own.failed,
            outcomes=outcomes,
            lease_age=max((now - h.since for h in held), default=0.0),
            jobs=tuple(sorted({h.run.lease.job_id for h in held})),
        )
