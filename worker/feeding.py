"""The rows of a chunk on their way to the engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.errors import StorageUnavailable
from jobs.records import RowErrorInfo, RowResult
from worker.bridge import EngineBridge
from worker.chunk_log import ChunkLog
from worker.chunk_run import ChunkRun
from worker.prompts import PromptEncoder
from worker.requests import Prepared
from worker.saving import Saver
from worker.task_requests import prepare
from worker.trials import Trials, Verdict

log = logging.getLogger("pagemill.worker")

LOOK_SECONDS = 0.2


class Feeder:
    """Prepares rows and submits them; those on trial in groups, one after the other.

    Threads may share it. One group of one chunk is on trial at a time.
    """

    def __init__(self, bridge: EngineBridge, saver: Saver) -> None:
        self._bridge = bridge
        self._saver = saver
        self._trial = threading.Lock()

    def feed(
        self,
        run: ChunkRun,
        rows: Sequence[Mapping[str, Any]],
        trials: Trials,
        encoder: PromptEncoder,
        max_model_len: int,
    ) -> None:
        """Submit rows, until the run is stopped.

        Args:
            rows: those without an outcome, with the keys `worker.requests.COLUMNS`.
        """
        by_index = {row["row_index"]: row for row in rows}
        if trials.on_trial:
            ChunkLog(log, run.lease).warning(
                "workers died over it, so its %d rows are tried in %d groups, apart from others",
                len(rows), len(trials.plan.groups),
                extra={"event": "chunk_on_trial", "rows": len(rows),
                       "groups": len(trials.plan.groups)},
            )  # fmt: skip

        def prepared(group: Sequence[int]) -> Iterator[Prepared]:
            return prepare(run.lease, [by_index[i] for i in group], encoder, max_model_len)

        if not trials.on_trial:
            for group in trials.plan.groups:
                self._submit(run, prepared(group))
            return
        for group in trials.plan.groups:
            self._try(run, group, list(prepared(group)), trials)
        verdict = self._verdict(run, trials)
        run.expect(Prepared((), _blamed(verdict.blamed, by_index)))
        for row in verdict.cleared:
            self._try(run, (row,), list(prepared((row,))), trials)

    def _submit(self, run: ChunkRun, batches: Iterator[Prepared]) -> None:
        for prepared in batches:
            if run.stop_reason is not None:
                return
            run.expect(prepared)
            self._bridge.submit(prepared.requests, run.accept)

    def _try(
        self, run: ChunkRun, group: Sequence[int], batches: Sequence[Prepared], trials: Trials
    ) -> None:
        """Run a group apart from all other rows, to its end."""
        while not self._trial.acquire(timeout=LOOK_SECONDS):
            if run.stop_reason is not None:
                return
        try:
            if run.stop_reason is not None:
                return
            for prepared in batches:
                run.expect(prepared)
            requests = [request for prepared in batches for request in prepared.requests]
            self._bridge.submit(requests, run.accept, apart=lambda: trials.begin(group))
            if run.wait_for(group):
                self._saver.save(run)
                trials.end_group()
        except StorageUnavailable as error:  # we have to leave; what was answered is tried again
            ChunkLog(log, run.lease).warning("%s", error, extra={"event": "rows_lost"})
        finally:
            self._trial.release()

    def _verdict(self, run: ChunkRun, trials: Trials) -> Verdict:
        """Who is to blame; nobody, if the run is stopped before that is known."""
        if not trials.plan.accused or run.stops_within(trials.patience):
            return Verdict()
        try:
            name = f"trials of {run.lease.chunk_id}"
            return self._saver.patiently(run, name, trials.verdict)
        except StorageUnavailable:  # we have to leave; the next lease asks again
            return Verdict()


def _blamed(
    blamed: Mapping[int, int], rows: Mapping[int, Mapping[str, Any]]
) -> tuple[RowResult, ...]:
    return tuple(
        RowResult(
            index,
            finish_reason="error",
            error=RowErrorInfo(
                "engine_crashed",
                f"{deaths} workers died, each with its engine, while they computed this row "
                "alone. The row is not tried again; see how much memory the hosts had, and what "
                "is unusual in the row",
                rows[index]["line"],
            ),
        )
        for index, deaths in blamed.items()
    )
