"""Workers, as they report themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a worker says of itself with every heartbeat; sums are since it started.

    Attributes:
        state: `starting` (its model is loaded), `ready`, `draining`, `failed` or `stopped`.
        message: why it failed, what it waits for, or what its start is at, in words; otherwise
            None.
        device: such as `cpu` or `cuda:0`; None before the model is loaded, like `dtype`.
        chunks_held: chunks that it works on.
    """

    state: str
    message: str | None = None
    device: str | None = None
    dtype: str | None = None
    chunks_held: int = 0
    rows_completed: int = 0
    rows_failed: int = 0
    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    tokens_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A row of the `workers` table.

    Attributes:
        id: `host:pid:random`, as in `lease_owner`.
        alive: it was seen within a lease's length, and has not said that it left.
    """

    id: str
    host: str
    pid: int
    model: str
    software: str
    concurrency: int
    status: WorkerStatus
    started_at: datetime
    seen_at: datetime
    alive: bool
