"""Jobs whose workers are played by the test, on a real store and real files."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs import layout
from jobs.database import Database
from jobs.parts import read_chunk_input, write_part
from jobs.records import (
    ChunkLease,
    ChunkSpec,
    Counts,
    DeviceTime,
    NewJob,
    Plan,
    RowErrorInfo,
    RowResult,
    WindowSpec,
)
from jobs.result_table import result_table
from jobs.schema import NORMALIZED, carried_fields, output_schema
from jobs.spool import SpoolWriter
from jobs.storage import Storage
from jobs.store import Store
from jobs.tallies import tally_errors

MODEL = "the-model"
CARRIED = pa.field("carried:topic", pa.string())
_SCHEMA = pa.schema([*NORMALIZED, CARRIED])


@dataclass(frozen=True)
class Window:
    """Rows of a window: those refused at submit, and the others by chunk, in any order."""

    chunks: Sequence[Sequence[int]]
    rejected: Sequence[int] = ()

    @property
    def rows(self) -> list[int]:
        return sorted([*self.rejected, *(row for chunk in self.chunks for row in chunk)])


@dataclass
class PlayedJob:
    """A job in a store, and the answers that its workers give.

    Attributes:
        failing: rows whose answer is an error.
        device: time that it takes to answer a chunk.
    """

    store: Store
    storage: Storage
    id: str
    failing: set[int] = field(default_factory=set)
    device: DeviceTime | None = None

    def claim(self, worker: str = "w") -> ChunkLease:
        lease = self.store.claim_chunk(worker, MODEL)
        assert lease is not None
        return lease

    def rows_of(self, lease: ChunkLease) -> list[int]:
        rows = self._input(lease)["row_index"].to_pylist()
        assert isinstance(rows, list)
        return rows

    def answer(self, row: int) -> RowResult:
        if row in self.failing:
            error = RowErrorInfo("nan_logits", "no number", None, None)
            return RowResult(row, finish_reason="error", prompt_tokens=4, seed=row, error=error)
        return RowResult(
            row, f"answer {row}", "stop", prompt_tokens=4, cached_tokens=2, completion_tokens=3,
            seed=row,
        )  # fmt: skip

    def finish(self, lease: ChunkLease) -> bool:
        """Answer a chunk and commit it."""
        results = {row: self.answer(row) for row in self.rows_of(lease)}
        folder = self.storage.job(lease.folder)
        part = write_part(folder, lease, self._input(lease), result_table(results.values()))
        errors = tally_errors(results.values())
        return self.store.commit_chunk(lease, part, counts_of(results), errors, self.device)

    def finish_all(self) -> None:
        while (lease := self.store.claim_chunk("w", MODEL)) is not None:
            self.finish(lease)

    def spool(self, lease: ChunkLease, rows: Iterable[int]) -> None:
        """Finish some rows of a chunk, not all."""
        writer = SpoolWriter(
            self.storage.job(lease.folder), lease.chunk_id, lease.epoch, "fingerprint"
        )
        writer.write(result_table(self.answer(row) for row in rows))

    def published(self, version: int = 1) -> list[dict[str, object]]:
        """The rows of a published version, as a dataset reader sees them."""
        folder = self.storage.job(self.store.job(self.id).folder)
        paths = folder.files(layout.version_folder(version), "*.parquet")
        return [row for path in paths for row in pq.read_table(folder.at(path)).to_pylist()]

    def _input(self, lease: ChunkLease) -> pa.Table:
        return read_chunk_input(self.storage.job(lease.folder), lease.input_path, lease.ordinal)


def add_job(
    store: Store,
    storage: Storage,
    windows: Sequence[Window],
    job_id: str | None = None,
    notify_urls: tuple[str, ...] = (),
) -> PlayedJob:
    """Insert a job whose rows lie in the given windows and chunks; row N is in line N + 1."""
    job_id = job_id or f"job_{uuid.uuid4().hex[:20]}"
    folder = storage.new_job(job_id)
    specs: list[WindowSpec] = []
    chunks: list[ChunkSpec] = []
    with (
        folder.create(layout.input_copy(1)) as file,
        pq.ParquetWriter(file, _SCHEMA) as writer,
    ):
        for number, window in enumerate(windows):
            for rows in window.chunks:
                writer.write_table(_normalized(rows))
                chunks.append(ChunkSpec(len(chunks), number, len(rows)))
            rejected = None
            if window.rejected:
                rejected = layout.rejected_part(1, number)
                with folder.create(rejected) as part:
                    pq.write_table(_rejected(window.rejected), part)
            specs.append(WindowSpec(number, window.rows[0], len(window.rows), rejected))
    refused = [row for window in windows for row in window.rejected]
    total = sum(len(window.rows) for window in windows)
    plan = Plan(
        layout.input_copy(1),
        tuple(specs),
        tuple(chunks),
        total,
        len(refused),
        rejected_errors=tally_errors(
            RowResult(row, error=RowErrorInfo("invalid_json", "no JSON", row + 1))
            for row in refused
        ),
    )
    new = NewJob(
        job_id, "played", MODEL, "/tmp/in.jsonl", job_id, {}, 7, 0, None, plan,
        notify_urls=notify_urls,
    )  # fmt: skip
    store.insert_job(new)
    return PlayedJob(store, storage, job_id)


def counts_of(results: Mapping[int, RowResult]) -> Counts:
    answered = [result for result in results.values() if result.error is None]
    return Counts(
        completed=len(answered),
        failed=len(results) - len(answered),
        prompt_tokens=sum(r.prompt_tokens for r in results.values()),
        cached_tokens=sum(r.cached_tokens for r in results.values()),
        completion_tokens=sum(r.completion_tokens for r in results.values()),
    )


def _normalized(rows: Sequence[int]) -> pa.Table:
    return _table(
        _SCHEMA,
        {
            "row_index": lambda row: row,
            "line": lambda row: row + 1,
            "custom_id": lambda row: f"id-{row}",
            "prompt": lambda row: f"prompt {row}",
            CARRIED.name: _topic,
        },
        rows,
    )


def _rejected(rows: Sequence[int]) -> pa.Table:
    schema = output_schema(carried_fields(_SCHEMA))
    return _table(
        schema,
        {
            "row_index": lambda row: row,
            "finish_reason": lambda row: "error",
            "prompt_tokens": lambda row: 0,
            "cached_tokens": lambda row: 0,
            "completion_tokens": lambda row: 0,
            "error": lambda row: {"code": "invalid_json", "message": "no JSON", "line": row + 1},
            "model": lambda row: MODEL,
            "topic": _topic,
        },
        rows,
    )


def _topic(row: int) -> str:
    return f"topic {row % 3}"


def _table(
    schema: pa.Schema, values: Mapping[str, Callable[[int], object]], rows: Sequence[int]
) -> pa.Table:
    columns = {
        name: [values[name](row) if name in values else None for row in rows]
        for name in schema.names
    }
    return pa.table(columns, schema=schema)


@contextlib.contextmanager
def sqlite_store(template: Path, folder: Path, lease_seconds: float = 60) -> Iterator[Store]:
    """A store on a copy of a migrated database."""
    shutil.copy(template, folder / "jobs.db")
    database = Database(f"sqlite:///{folder / 'jobs.db'}")
    try:
        yield Store(database, lease_seconds=lease_seconds)
    finally:
        database.close()
