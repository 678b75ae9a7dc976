"""One leased chunk on its way through the engine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum

from engine.messages import TokenCounts
from engine.request import FinishReason, RequestOutput
from jobs.records import ChunkLease, Counts, RowErrorInfo, RowResult
from jobs.spool import SpoolWriter
from worker.requests import Prepared


class Stop(Enum):
    """Why a chunk is left before it is done."""

    HAND_BACK = "handed back"  # this worker leaves at once
    JOB_STOPPING = "job is being cancelled or expires"
    LEASE_LOST = "lease lost"  # another worker has the chunk: write nothing more


class ChunkRun:
    """Collects the answers of a chunk's rows, from whichever thread they come.

    Args:
        lease: the right to work on it.
        spool: where finished rows are written down while others still run.
        lines: line in the input of each row_index.
        adopted: rows that an earlier worker had finished and spooled.
    """

    def __init__(
        self,
        lease: ChunkLease,
        spool: SpoolWriter,
        lines: Mapping[int, int],
        adopted: Mapping[int, RowResult],
    ) -> None:
        self.lease = lease
        self._spool = spool
        self._lines = lines
        self._lock = threading.Lock()
        self._spool_lock = threading.Lock()
        self._results = dict(adopted)
        self._counts = sum(map(row_counts, adopted.values()), Counts())
        self._unspooled: list[RowResult] = []
        self._rows: dict[str, int] = {}
        self._seeds: dict[int, int] = {}
        self._ended = threading.Event()
        self.stop_reason: Stop | None = None
        self._check_end()

    def expect(self, prepared: Prepared) -> None:
        """Announce requests before they are submitted; takes the refused rows at once."""
        with self._lock:
            self._rows.update(prepared.row_indices)
            self._seeds.update(prepared.seeds)
        for result in prepared.refused:
            self._add(result)

    def accept(self, output: RequestOutput) -> None:
        """Take one answer of the engine."""
        with self._lock:
            index = self._rows.pop(output.request_id, None)
        if index is not None:
            self._add(self._result(index, output))

    def results(self) -> dict[int, RowResult]:
        with self._lock:
            return dict(self._results)

    def counts(self, running: Mapping[str, TokenCounts] | None = None) -> Counts:
        """Counts of the finished rows, plus the tokens of those that are still computed."""
        with self._lock:
            counts = self._counts
            tokens = [running[i] for i in self._rows if i in running] if running else []
        return counts + Counts(
            prompt_tokens=sum(t.prompt for t in tokens),
            cached_tokens=sum(t.cached for t in tokens),
            completion_tokens=sum(t.completion for t in tokens),
        )

    def unfinished(self) -> tuple[str, ...]:
        """Request ids without an answer."""
        with self._lock:
            return tuple(self._rows)

    def flush(self) -> None:
        """Write the rows that finished since the last time to the spool."""
        with self._spool_lock:
            with self._lock:
                if self.stop_reason is Stop.LEASE_LOST:
                    return
                results, self._unspooled = self._unspooled, []
            if not results:
                return
            try:
                self._spool.write(results)
            except BaseException:
                with self._lock:
                    self._unspooled = results + self._unspooled
                raise

    def stop(self, reason: Stop) -> None:
        """Leave the chunk; the first reason counts, but a lost lease beats all."""
        with self._lock:
            if self.stop_reason is None or reason is Stop.LEASE_LOST:
                self.stop_reason = reason
        self._ended.set()

    def wait(self) -> Stop | None:
        """Wait until all rows are in (None) or the run was stopped (why)."""
        self._ended.wait()
        with self._lock:
            return self.stop_reason

    def _add(self, result: RowResult) -> None:
        with self._lock:
            if result.row_index in self._results:
                return
            self._results[result.row_index] = result
            self._counts += row_counts(result)
            self._unspooled.append(result)
        self._check_end()

    def _check_end(self) -> None:
        with self._lock:
            if len(self._results) == self.lease.rows:
                self._ended.set()

    def _result(self, index: int, output: RequestOutput) -> RowResult:
        error = None
        if output.finish_reason is FinishReason.ERROR:
            error = RowErrorInfo(
                output.error_code or "engine_error",
                output.error_message or "the engine could not answer the row",
                self._lines[index],
                output.error_field,
            )
        return RowResult(
            index,
            text=output.text if error is None else None,
            finish_reason=output.finish_reason,
            prompt_tokens=output.prompt_tokens,
            cached_tokens=output.cached_tokens,
            completion_tokens=output.completion_tokens,
            seed=self._seeds[index],
            error=error,
        )


def row_counts(result: RowResult) -> Counts:
    """What one finished row adds to its chunk."""
    return Counts(
        completed=int(result.error is None),
        failed=int(result.error is not None),
        prompt_tokens=result.prompt_tokens,
        cached_tokens=result.cached_tokens,
        completion_tokens=result.completion_tokens,
    )
