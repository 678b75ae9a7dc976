"""The nouns that `jobs` and `worker` speak in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jobs.states import ChunkState, JobState


@dataclass(frozen=True, slots=True)
class Counts:
    """Row and token counts; they add up."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            self.expired + other.expired,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.completed - other.completed,
            self.failed - other.failed,
            self.cancelled - other.cancelled,
            self.expired - other.expired,
            self.prompt_tokens - other.prompt_tokens,
            self.cached_tokens - other.cached_tokens,
            self.completion_tokens - other.completion_tokens,
        )

    @property
    def rows(self) -> int:
        return self.completed + self.failed + self.cancelled + self.expired


@dataclass(frozen=True, slots=True)
class RowErrorInfo:
    """Why a row has no answer; `line` is the 1-based line (JSONL) or row (Parquet) of the input."""

    code: str
    message: str
    line: int | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a position."""

    token_id: int
    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a generated token was; `bytes` is what it adds to the text."""

    token_id: int
    token: str
    bytes: bytes
    logprob: float
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several answers to one row (`n`)."""

    text: str
    finish_reason: str
    completion_tokens: int
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowResult:
    """The outcome of one row: an answer, or an error, never both.

    Attributes:
        text, finish_reason, logprobs: of the first answer.
        completion_tokens: of all answers together.
        choices: all answers, the first one included; None unless the row asks for several.
    """

    row_index: int
    text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seed: int | None = None
    error: RowErrorInfo | None = None
    choices: tuple[Choice, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class ErrorTally:
    """Rows that have no answer for one reason, and the first of them as an example."""

    code: str
    rows: int
    row_index: int
    line: int | None
    field: str | None
    message: str


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """A chunk as the planner cut it.

    Attributes:
        ordinal: number of the chunk within its version, from 0; also its row group in the
            normalized copy.
        window: the window that it lies in.
        rows: rows in it.
    """

    ordinal: int
    window: int
    rows: int


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A run of consecutive input rows that is planned, and later merged, as one.

    Attributes:
        ordinal: number of the window, from 0.
        first_row: lowest row_index in it.
        rows: rows in it, refused ones included.
        rejected: path (relative to the job's folder) of the part that holds the rows which
            were refused at submit; None where there are none.
        base: path of the file that the previous version published for the window; rows of it
            that this version does not compute again are taken over (retry).
    """

    ordinal: int
    first_row: int
    rows: int
    rejected: str | None = None
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one version of a job has to do.

    Attributes:
        input_path: the normalized copy, relative to the job's folder.
        rejected: rows refused at submit (they are counted as failed from the start).
        follows: the version that a retry was planned from; a job that has gone on from there
            is not opened again with this plan.
        rejected_errors: what was wrong with the rejected rows, by code.
    """

    input_path: str
    windows: tuple[WindowSpec, ...]
    chunks: tuple[ChunkSpec, ...]
    total_rows: int
    rejected: int
    follows: int | None = None
    rejected_errors: tuple[ErrorTally, ...] = ()


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that was validated and normalized, to be inserted with its chunks.

    Attributes:
        options: everything that decides the answers, frozen: `sampling` (defaults of the job's
            rows), `system`, `template`, `seed`, … JSON data only.
        folder: the job's folder, relative to the storage root.
        fingerprint: of `jobs.fingerprint`.
        idempotency_key: no other job has it; whoever submits with it again gets this job.
    """

    id: str
    name: str | None
    model: str
    input_uri: str
    folder: str
    options: Mapping[str, Any]
    seed: int
    priority: int
    deadline_at: datetime | None
    plan: Plan
    fingerprint: str | None = None
    idempotency_key: str | None = None


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
        fingerprint: what decides the answers (`jobs.fingerprint`); None of jobs that an older
            pagemill submitted.
        paused_at: since when no chunk of it is begun; only while it is queued or in progress.
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
class JobProgress:
    """A job as a watcher sees it: committed counts plus those of the chunks that were begun.

    Attributes:
        workers_alive: workers of the job's model that are alive, whatever they work on.
        last_worker: the one of them that was seen last, if none is alive.
    """

    job: JobRecord
    counts: Counts
    chunks_running: int
    chunks_done: int
    now: datetime
    workers_alive: int = 0
    last_worker: WorkerRecord | None = None


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


@dataclass(frozen=True, slots=True)
class ChunkLease:
    """The right to work on a chunk, until the lease runs out or is taken back.

    Everything that a worker needs is in it, so that it asks SQL once.

    Attributes:
        epoch: fencing token: every commit names it.
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
class WorkerStatus:
    """What a worker says of itself with every heartbeat; sums are since it started.

    Attributes:
        state: `starting` (its model is loaded), `ready`, `draining`, `failed` or `stopped`.
        message: why it failed, or what it waits for, in a sentence; otherwise None.
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


@dataclass(frozen=True, slots=True)
class MergeLease:
    """The right to merge one window, or (window None) to finalize a job.

    Attributes:
        parts: committed parts of the window, relative to the job's folder.
        chunks: all chunks of the window; those that are STOPPED have no part, and their
            unanswered rows become `stop_reason` error rows.
    """

    job_id: str
    version: int
    epoch: int
    owner: str
    folder: str
    window: WindowSpec | None = None
    chunks: tuple[ChunkRecord, ...] = ()
    stop_reason: str | None = None
    merged: tuple[str, ...] = field(default=())
