"""Where a job stands: what `pagemill status --json` prints, typed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobs.states import JobState

if TYPE_CHECKING:
    from jobs.records import JobProgress
    from jobs.storage import Storage


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of a job, by what became of them; those that are left are in `total` alone."""

    total: int
    completed: int
    failed: int
    cancelled: int
    expired: int

    @property
    def done(self) -> int:
        """Those that have an answer, or will have none."""
        return self.completed + self.failed + self.cancelled + self.expired


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of a job; those of `prompt` that came from the prefix cache are `cached`."""

    prompt: int
    cached: int
    completion: int


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a job took of devices.

    Attributes:
        seconds: that they computed, GPUs and processors.
        gpu_seconds: those of them that GPUs did.
        tokens_per_hour: tokens that were computed, of prompts and answers, an hour of devices;
            None before there are any.
    """

    seconds: float
    gpu_seconds: float
    tokens_per_hour: int | None


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """Chunks of the version that is worked on."""

    total: int
    left: int
    running: int
    done: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed as a whole."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Notification:
    """The end of a job, told to a URL (docs/webhooks.md).

    Attributes:
        id: what the receiver gets as `Pagemill-Delivery`.
        url: only its scheme and host; the rest may be a secret.
        state: `pending`, `delivered` or `failed`, which is given up.
        error: why the last attempt was in vain.
        next_at: when it is tried again, while it is pending.
    """

    id: str
    subject: str
    event: str
    url: str
    state: str
    attempts: int
    error: str | None
    created_at: datetime
    next_at: datetime | None
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment; docs/cli.md tells of each field (`status --json`).

    Attributes:
        state: a `JobState`, which is a text too: `status.state == "completed"`.
        input: the path or URI of the input; `<list>` and the like if it was no file.
        output: folder of the newest published version.
        waiting_for: what it waits for, in words: a worker, a disk; None while it goes on.
        error: why it failed as a whole; rows have errors of their own (`Job.errors`).
        notify: hosts of the URLs that are told its end.
        notifications: what became of that, once it has ended.
    """

    id: str
    name: str | None
    state: JobState
    model: str
    input: str
    version: int
    published_version: int | None
    output: str | None
    rows: RowCounts
    tokens: TokenCounts
    device: DeviceUse
    chunks: ChunkCounts
    workers_alive: int
    seed: int
    fingerprint: str | None
    idempotency_key: str | None
    priority: int
    stop_reason: str | None
    waiting_for: str | None
    error: Failure | None
    created_at: datetime
    started_at: datetime | None
    finalizing_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    paused_at: datetime | None
    cancel_requested_at: datetime | None
    notify: tuple[str, ...]
    notifications: tuple[Notification, ...]

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed, cancelled or expired."""
        return self.state.terminal

    def __str__(self) -> str:
        rows = f"{self.rows.done:,} of {self.rows.total:,} rows done"
        paused = "" if self.paused_at is None else " (paused)"
        return f"{self.id} {self.state}{paused}, {rows}"


def status_of(progress: JobProgress, storage: Storage) -> JobStatus:
    """The status of a job, of the very values that the command line prints."""
    from jobs.cli.shapes import progress_json

    shape: dict[str, Any] = progress_json(progress, storage)
    shape |= {
        "state": progress.job.state,
        "rows": RowCounts(**shape["rows"]),
        "tokens": TokenCounts(**shape["tokens"]),
        "device": DeviceUse(**shape["device"]),
        "chunks": ChunkCounts(**shape["chunks"]),
        "error": None if shape["error"] is None else Failure(**shape["error"]),
        "notify": tuple(shape["notify"]),
        "notifications": tuple(map(_notification, shape["notifications"])),
    }
    for field in dataclasses.fields(JobStatus):
        if field.name.endswith("_at"):
            shape[field.name] = getattr(progress.job, field.name)
    return JobStatus(**{field.name: shape[field.name] for field in dataclasses.fields(JobStatus)})


def _notification(shape: Mapping[str, Any]) -> Notification:
    times = {
        name: None if shape[name] is None else datetime.fromisoformat(shape[name])
        for name in shape
        if name.endswith("_at")
    }
    return Notification(**{**shape, **times})
