"""Preparing small inputs, and reading back what came of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.job_folder import JobFolder
from jobs.records import NewJob
from jobs.storage import Storage
from jobs.submission import Submission, prepare


@dataclass(frozen=True)
class Prepared:
    """A prepared job, by its files."""

    job: NewJob
    folder: JobFolder

    @property
    def copy(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.folder.at(self.job.plan.input_path))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the normalized copy in input order, their JSON read."""
        with self.copy as file:
            rows = file.read().to_pylist()
        for row in rows:
            for name in ("messages", "chat", "params", "continuations"):
                row[name] = None if row[name] is None else orjson.loads(row[name])
        return sorted(rows, key=lambda row: row["row_index"])

    def rejected_tables(self) -> list[pa.Table]:
        return [
            pq.read_table(self.folder.at(window.rejected))
            for window in self.job.plan.windows
            if window.rejected is not None
        ]

    def rejected(self) -> list[dict[str, Any]]:
        return [row for table in self.rejected_tables() for row in table.to_pylist()]

    def errors(self) -> list[tuple[int, str, str | None]]:
        """(line, code, field) of every refused row."""
        return [
            (row["error"]["line"], row["error"]["code"], row["error"]["field"])
            for row in self.rejected()
        ]


def prepare_file(path: Path | str, storage: Path, **options: Any) -> Prepared:
    job = prepare(
        Submission(**{"input": str(path), "model": "tiny", **options}), Storage(str(storage))
    )
    return Prepared(job, Storage(str(storage)).job(job.folder))


def prepare_lines(folder: Path, *lines: bytes | dict[str, Any], **options: Any) -> Prepared:
    """Prepare JSON lines; dicts are written as JSON."""
    folder.mkdir(exist_ok=True)
    path = folder / "input.jsonl"
    path.write_bytes(json_lines(*lines))
    return prepare_file(path, folder / "storage", **options)


def prepare_table(folder: Path, table: pa.Table, **options: Any) -> Prepared:
    folder.mkdir(exist_ok=True)
    path = folder / "input.parquet"
    pq.write_table(table, path)
    return prepare_file(path, folder / "storage", **options)


def json_lines(*lines: bytes | dict[str, Any]) -> bytes:
    return b"".join(
        (line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines
    )
