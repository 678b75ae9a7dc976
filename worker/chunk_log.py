"""Log lines about one chunk."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from jobs.records import ChunkLease
from worker.chunk_run import ChunkRun
from worker.workload import Outcome


class ChunkLog(logging.LoggerAdapter[logging.Logger]):
    """Names the chunk in each line, for people; and for machines its job and its lease too.

    More fields are given as `extra`, as to any logger.
    """

    def __init__(self, logger: logging.Logger, lease: ChunkLease) -> None:
        super().__init__(
            logger,
            {
                "job_id": lease.job_id,
                "chunk_id": lease.chunk_id,
                "epoch": lease.epoch,
                "worker_id": lease.owner,
            },
        )

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = {**(self.extra or {}), **kwargs.get("extra", {})}
        return f"chunk {fields['chunk_id']}: {msg}", {**kwargs, "extra": fields}


def log_end(chunk_log: ChunkLog, run: ChunkRun, outcome: Outcome, seconds: float) -> None:
    """Tell how a run ended, and what came of it."""
    counts = run.counts()
    said = {
        Outcome.FENCED: "fenced: another worker has it by now",
        Outcome.HANDED_BACK: run.stop_reason.value if run.stop_reason is not None else "",
    }.get(outcome, "done")
    chunk_log.info(
        "%s: %d of %d rows, %d of them errors, %d tokens generated, in %.1f s",
        said, counts.rows, run.lease.rows, counts.failed, counts.completion_tokens, seconds,
        extra={
            "event": f"chunk_{outcome}",
            "rows": counts.rows,
            "errors": counts.failed,
            "prompt_tokens": counts.prompt_tokens,
            "cached_tokens": counts.cached_tokens,
            "completion_tokens": counts.completion_tokens,
            "seconds": round(seconds, 3),
            "device_seconds": round(run.device_time().seconds, 3),
        },
    )  # fmt: skip
