"""One leased chunk on its way through the engine."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from enum import Enum

import pyarrow as pa

from engine.messages import TokenCounts
from engine.request import RequestOutput
from jobs.manifest import count_rows
from jobs.records import ChunkLease, Counts, DeviceTime, RowResult
from jobs.result_table import result_table
from jobs.spool import SpoolWriter
from worker.requests import Prepared
from worker.row_samples import RowSamples


class Stop(Enum):
    """Why a chunk is left before it is done."""

    HAND_BACK = "handed back"  # this worker leaves at once
    JOB_STOPPING = "job is paused, cancelled or overdue"
    LEASE_LOST = "lease lost"  # another worker has the chunk: write nothing more


class ChunkRun:
    """Collects the answers of a chunk's rows, from whichever thread they come.

    Args:
        lease: the right to work on it.
        spool: where finished rows are written down while others still run.
        lines: line in the input of each row_index.
        adopted: rows that an earlier worker had finished and spooled.
        on_gpu: whether the engine's device is one.
    """

    def __init__(
        self,
        lease: ChunkLease,
        spool: SpoolWriter,
        lines: Mapping[int, int],
        adopted: pa.Table,
        *,
        on_gpu: bool = False,
    ) -> None:
        self.lease = lease
        self._spool = spool
        self._lines = lines
        self._lock = threading.Lock()
        self._spool_lock = threading.Lock()
        self._spooled = [adopted]  # rows that were written down are kept as columns
        self._unspooled: list[RowResult] = []
        self._finished: set[int] = set(adopted.column("row_index").to_pylist())
        self._counts = count_rows(adopted)
        self._on_gpu = on_gpu
        self._device_seconds = 0.0
        self._rows: dict[int, RowSamples] = {}
        self._samples: dict[str, tuple[int, int]] = {}  # row_index and sample of each request
        self._ended = threading.Event()
        self._changed = threading.Condition(self._lock)
        self.stop_reason: Stop | None = None
        self._check_end()

    def expect(self, prepared: Prepared) -> None:
        """Announce requests before they are submitted; takes the refused rows at once."""
        with self._lock:
            for row in prepared.rows:
                self._rows[row.row_index] = RowSamples(row)
                self._samples.update(
                    (request.request_id, (row.row_index, request.sample_index))
                    for request in row.requests
                )
        for result in prepared.refused:
            self._add(result)

    def accept(self, output: RequestOutput) -> None:
        """Take one answer of the engine."""
        with self._lock:
            index, sample = self._samples.pop(output.request_id, (None, 0))
            if index is None:
                return
            row = self._rows[index]
            row.add(sample, output)
            if not row.complete:
                return
            del self._rows[index]
        self._add(row.result(self._lines[index]))

    def is_finished(self, row_index: int) -> bool:
        with self._lock:
            return row_index in self._finished

    def results(self) -> pa.Table:
        """The finished rows, of the schema `jobs.schema.RESULT`, in any order."""
        with self._spool_lock, self._lock:
            return pa.concat_tables([*self._spooled, result_table(self._unspooled)])

    def counts(self, running: Mapping[str, TokenCounts] | None = None) -> Counts:
        """Counts of the finished rows, plus the tokens of those that are still computed."""
        with self._lock:
            if running is None:
                return self._counts
            return sum((row.counts(running) for row in self._rows.values()), self._counts)

    def spend(self, seconds: float) -> None:
        """So much of the device's time was taken by its rows."""
        with self._lock:
            self._device_seconds += seconds

    def device_time(self) -> DeviceTime:
        """What its rows took of devices, and under earlier leases, as far as that was told."""
        with self._lock:
            own = self._device_seconds
        return self.lease.device + DeviceTime(own, own if self._on_gpu else 0.0)

    def spooled_counts(self) -> Counts:
        """Counts of the rows that were written down."""
        with self._lock:
            return sum(map(count_rows, self._spooled), Counts())

    def unfinished(self) -> tuple[str, ...]:
        """Request ids without an answer."""
        with self._lock:
            return tuple(self._samples)

    def flush(self) -> None:
        """Write the rows that finished since the last time to the spool."""
        with self._spool_lock:
            with self._lock:
                if self.stop_reason is Stop.LEASE_LOST:
                    return
                results = list(self._unspooled)
            if not results:
                return
            table = result_table(results)
            self._spool.write(table)
            with self._lock:
                del self._unspooled[: len(results)]
                self._spooled.append(table)

    def stop(self, reason: Stop) -> None:
        """Leave the chunk; the first reason counts, but a lost lease beats all."""
        with self._lock:
            if self.stop_reason is None or reason is Stop.LEASE_LOST:
                self.stop_reason = reason
            self._changed.notify_all()
        self._ended.set()

    @property
    def is_lost(self) -> bool:
        """Whether another worker has the chunk by now."""
        with self._lock:
            return self.stop_reason is Stop.LEASE_LOST

    def wait_for(self, rows: Collection[int]) -> bool:
        """Wait until these rows are in; false if the run was stopped before."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.stop_reason is not None or self._finished.issuperset(rows)
            )
            return self._finished.issuperset(rows)

    def stops_within(self, seconds: float) -> bool:
        """Wait so long at most; whether the run is over."""
        return self._ended.wait(seconds)

    def wait(self) -> Stop | None:
        """Wait until all rows are in (None) or the run was stopped (why)."""
        self._ended.wait()
        with self._lock:
            return self.stop_reason

    def _add(self, result: RowResult) -> None:
        with self._lock:
            if result.row_index in self._finished:
                return
            self._finished.add(result.row_index)
            self._counts += row_counts(result)
            self._unspooled.append(result)
            self._changed.notify_all()
        self._check_end()

    def _check_end(self) -> None:
        with self._lock:
            if len(self._finished) == self.lease.rows:
                self._ended.set()


def row_counts(result: RowResult) -> Counts:
    """What one finished row adds to its chunk."""
    return Counts(
        completed=int(result.error is None),
        failed=int(result.error is not None),
        prompt_tokens=result.prompt_tokens,
        cached_tokens=result.cached_tokens,
        completion_tokens=result.completion_tokens,
    )
