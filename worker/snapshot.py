"""One look at a worker: what its metrics, its row in SQL and its log say of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.messages import EngineStats
from jobs.records import WorkerStatus
from worker.workload import WorkloadTotals


class WorkerState(StrEnum):
    STARTING = "starting"  # its model is loaded
    READY = "ready"
    DRAINING = "draining"  # it finishes or hands back what it has, and begins nothing
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How a worker stands; sums are since it started.

    Attributes:
        message: why it failed, what it waits for, or what its start is at, in words.
        device, dtype: None before the model is loaded.
        engine: the state of the engine that runs, and the counts of all engines so far.
        engine_restarts: engines that were started in place of one that died.
        rows_suspected: rows of which one may kill the engine, and which run apart therefore.
        rows_blamed: rows that were found to kill engines.
        tokens_per_second: generated tokens, over the last ten seconds or so.
        heartbeat_age: seconds since a heartbeat succeeded.
        notified: notifications that it sent, and that were taken.
        notification_failures: attempts to send one that were in vain.
        notifications_given_up: those of them that were the last.
    """

    state: WorkerState
    message: str | None
    device: str | None
    dtype: str | None
    engine: EngineStats
    engine_restarts: int
    rows_suspected: int
    rows_blamed: int
    tokens_per_second: float
    work: WorkloadTotals
    heartbeat_age: float
    heartbeat_failures: int
    notified: int = 0
    notification_failures: int = 0
    notifications_given_up: int = 0

    @property
    def prefix_cache_hit_ratio(self) -> float:
        """Share of the prompt tokens that were found in the prefix cache."""
        return self.engine.cached_tokens / max(1, self.engine.prompt_tokens)

    def trouble(self, lease_seconds: float) -> str | None:
        """Why the worker is not healthy, in a sentence; None if it is.

        A worker whose heartbeats fail for the length of a lease loses its chunks to others.
        """
        if self.state is WorkerState.FAILED:
            return f"the worker failed: {self.message}"
        if self.heartbeat_age > lease_seconds:
            return (
                f"no heartbeat succeeded for {self.heartbeat_age:.0f} s, and a lease lasts "
                f"{lease_seconds:g} s: the database cannot be reached, or is too slow"
            )
        return None

    def status(self) -> WorkerStatus:
        """As the `workers` table has it."""
        engine, work = self.engine, self.work
        return WorkerStatus(
            state=self.state,
            message=self.message,
            device=self.device,
            dtype=self.dtype,
            chunks_held=work.chunks_held,
            rows_completed=work.completed,
            rows_failed=work.failed,
            running=engine.running,
            waiting=engine.waiting,
            blocks_used=engine.blocks_used,
            blocks_cached=engine.blocks_cached,
            blocks_total=engine.blocks_total,
            prompt_tokens=engine.prompt_tokens,
            cached_tokens=engine.cached_tokens,
            generated_tokens=engine.generated_tokens,
            preemptions=engine.preemptions,
            tokens_per_second=self.tokens_per_second,
        )
