"""New jobs, and what a version of a job has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs.records.counts import Counts
from jobs.records.rows import ErrorTally


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
        published: counts of the version that it builds upon, where those of the job are of a
            later one that failed.
        rejected_errors: what was wrong with the rejected rows, by code.
    """

    input_path: str
    windows: tuple[WindowSpec, ...]
    chunks: tuple[ChunkSpec, ...]
    total_rows: int
    rejected: int
    follows: int | None = None
    published: Counts | None = None
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
        notify_urls: where its end is told; whole, with their secrets.
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
    notify_urls: tuple[str, ...] = ()
