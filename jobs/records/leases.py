"""The right to work on something, for a while, and how one hears of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.records.device_time import NO_TIME, DeviceTime
from jobs.records.jobs import ChunkRecord
from jobs.records.plans import WindowSpec


@dataclass(frozen=True, slots=True)
class ChunkLease:
    """The right to work on a chunk, until the lease runs out or is taken back.

    Everything that a worker needs is in it, so that it asks SQL once.

    Attributes:
        epoch: fencing token: every commit names it.
        device: time that devices computed the chunk under earlier leases, as far as was told.
    """

    chunk_id: str
    job_id: str
    version: int
    ordinal: int
    window: int
    rows: int
    epoch: int
    owner: str
    model: str
    folder: str
    input_path: str
    options: Mapping[str, Any]
    seed: int
    priority: int
    device: DeviceTime = NO_TIME

    @property
    def step(self) -> str:
        """What it is the right to do, in words."""
        return f"answering chunk {self.ordinal}"


@dataclass(frozen=True, slots=True)
class MergeLease:
    """The right to merge one window, or (window None) to finalize a job.

    Attributes:
        chunks: all chunks of the window; those that are STOPPED have no part, and their
            unanswered rows become `stop_reason` error rows.
        merged: of a finalization, the merged windows, relative to the job's folder.
        never_ended: how many tries of this step never told how they ended: their processes died,
            or stood still for longer than their leases.
        former: who made the last one of them, where that was the last try.
    """

    job_id: str
    version: int
    epoch: int
    owner: str
    folder: str
    window: WindowSpec | None = None
    chunks: tuple[ChunkRecord, ...] = ()
    stop_reason: str | None = None
    merged: tuple[str, ...] = ()
    never_ended: int = 0
    former: str | None = None

    @property
    def step(self) -> str:
        """What it is the right to do, in words."""
        if self.window is None:
            return "publishing"
        return f"merging window {self.window.ordinal}"


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a heartbeat learned.

    Attributes:
        lost: chunks whose lease is no longer ours: stop, publish nothing.
        stopping: chunks that we hold, but whose job is paused, being cancelled, or expires: hand
            back.
    """

    lost: frozenset[str] = frozenset()
    stopping: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A queued chunk that a worker of its model shall hear of.

    Attributes:
        priority: of the job; higher is served first.
    """

    job_id: str
    chunk_id: str
    model: str
    priority: int
