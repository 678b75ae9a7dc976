"""Jobs and their pieces, as SQL has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs.records.counts import Counts
from jobs.records.device_time import NO_TIME, DeviceTime
from jobs.records.evaluations import NotificationRecord
from jobs.records.plans import WindowSpec
from jobs.records.workers import WorkerRecord
from jobs.states import ChunkState, JobState


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A row of the `jobs` table.

    Attributes:
        version: the version being worked on (or the last one), from 1.
        published_version: newest version that readers may open; None before the first.
        stop_reason: `cancelled` or `expired` once that was asked for, else None.
        waiting_for: what it waits for at the moment, in a sentence; None while it goes on.
        counts: rows and tokens of the committed chunks and of the refused rows. While a chunk
            runs, its own counts are in the `chunks` table; see `JobProgress`.
        device: time that devices computed its chunks that have ended, those of earlier versions
            and what came of nothing included.
        fingerprint: what decides the answers (`jobs.fingerprint`); None of jobs that an older
            pagemill submitted.
        paused_at: since when no chunk of it is begun; only while it is queued or in progress.
        notify_urls: where its end is told; whole, with their secrets (`jobs.shown_urls`).
    """

    id: str
    name: str | None
    state: JobState
    model: str
    input_uri: str
    folder: str
    options: Mapping[str, Any]
    seed: int
    priority: int
    version: int
    published_version: int | None
    total_rows: int
    chunks_total: int
    chunks_left: int
    counts: Counts
    stop_reason: str | None
    error_code: str | None
    error_message: str | None
    waiting_for: str | None
    created_at: datetime
    started_at: datetime | None
    finalizing_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    fingerprint: str | None = None
    idempotency_key: str | None = None
    paused_at: datetime | None = None
    device: DeviceTime = NO_TIME
    notify_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A row of the `events` table.

    Attributes:
        actor: `user@host` of a command, or the id of a worker or a beat.
        event: one of the names in `jobs.store.events`.
    """

    id: int
    job_id: str
    at: datetime
    actor: str
    event: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class TakenSlots:
    """Why no worker takes a chunk of a job: each works on as many chunks of others as it may.

    Attributes:
        workers: how many workers that is.
        jobs: ids of the jobs that they work on.
    """

    workers: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job as a watcher sees it: committed counts plus those of the chunks that were begun.

    Attributes:
        counts, device: those of the job, and of its chunks that were begun.
        workers_alive: workers of the job's model that are alive, whatever they work on.
        last_worker: the one of them that was seen last, if none is alive.
        taken: what keeps those workers from beginning it, if nothing of it is worked on.
        starting: what the start of one of them is at, if all of them start.
        notifications: what became of telling the end of this version to its URLs.
    """

    job: JobRecord
    counts: Counts
    chunks_running: int
    chunks_done: int
    now: datetime
    workers_alive: int = 0
    last_worker: WorkerRecord | None = None
    device: DeviceTime = NO_TIME
    taken: TakenSlots | None = None
    starting: str | None = None
    notifications: Sequence[NotificationRecord] = ()


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A row of the `chunks` table."""

    id: str
    job_id: str
    version: int
    ordinal: int
    window: int
    rows: int
    state: ChunkState
    lease_epoch: int
    lease_owner: str | None
    lease_expires_at: datetime | None
    part: str | None
    counts: Counts
    device: DeviceTime = NO_TIME


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """A row of the `windows` table.

    Attributes:
        chunks_left: chunks of the window that are neither DONE nor STOPPED.
        merged: path (relative to the job's folder) of the merged window; None before.
        epoch: fencing token of its last merge lease.
    """

    job_id: str
    version: int
    window: WindowSpec
    chunks_left: int
    merged: str | None
    epoch: int
