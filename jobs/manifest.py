"""What a published version consists of, in one JSON file that is written last.

The manifest is a function of the job and its merged files alone (no clock, no host), so that
a finalization that is repeated after a crash writes the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Self

import orjson
import pyarrow as pa
import pyarrow.compute as pc

import jobs
from jobs import layout
from jobs.errors import OutputError
from jobs.job_folder import JobFolder
from jobs.parquet_files import open_parquet
from jobs.records import Counts, JobRecord

_STOPPED = ("cancelled", "expired")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of output rows.

    Attributes:
        path: relative to the manifest.
        sha256: of its bytes, in hexadecimal.
        counts: outcomes and tokens of its rows.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def named(self, path: str) -> Self:
        return dataclasses.replace(self, path=path)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        return cls(**{**values, "counts": Counts(**values["counts"])})


def describe(folder: JobFolder, path: str) -> FileEntry:
    """Count, measure and hash an output file.

    Raises:
        OutputError: the file is missing or damaged.
    """
    with open_parquet(folder, path) as file:
        counts = Counts()
        columns = ["error", "prompt_tokens", "cached_tokens", "completion_tokens"]
        for group in range(file.num_row_groups):
            counts += count_rows(file.read_row_group(group, columns))
    with folder.open(path) as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    name = PurePosixPath(path).name
    return FileEntry(name, counts.rows, folder.size(path), digest, counts)


def count_rows(rows: pa.Table) -> Counts:
    """Outcomes and tokens of output rows (the columns `error` and `…_tokens` suffice)."""
    codes = pc.struct_field(rows.column("error"), "code")
    stopped = {code: pc.sum(pc.equal(codes, code)).as_py() or 0 for code in _STOPPED}
    return Counts(
        completed=codes.null_count,
        failed=rows.num_rows - codes.null_count - sum(stopped.values()),
        cancelled=stopped["cancelled"],
        expired=stopped["expired"],
        prompt_tokens=pc.sum(rows.column("prompt_tokens")).as_py() or 0,
        cached_tokens=pc.sum(rows.column("cached_tokens")).as_py() or 0,
        completion_tokens=pc.sum(rows.column("completion_tokens")).as_py() or 0,
    )


def manifest_bytes(job: JobRecord, schema: pa.Schema, files: list[FileEntry]) -> bytes:
    """The manifest of the version that the job works on."""
    counts = sum((file.counts for file in files), Counts())
    content = {
        "format": 1,
        "job": job.id,
        "name": job.name,
        "version": job.version,
        "rows": counts.rows,
        "counts": dataclasses.asdict(counts),
        "device_seconds": round(job.device.seconds, 3),
        "gpu_seconds": round(job.device.gpu_seconds, 3),
        "stopped": job.stop_reason,
        "model": job.model,
        "seed": job.seed,
        "options_sha256": _digest(dict(job.options)),
        "fingerprint": job.fingerprint,
        "input": job.input_uri,
        "software": jobs.__version__,
        "schema": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            for field in schema
        ],
        "files": [file.to_json() for file in files],
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(folder: JobFolder, version: int) -> dict[str, Any]:
    """The manifest of a published version, as JSON data; its shape is in docs/output.md.

    Raises:
        OutputError: it is not a manifest.
        StorageError: it cannot be read.
    """
    path = layout.manifest(version)
    try:
        content = orjson.loads(folder.read(path))
    except orjson.JSONDecodeError as error:
        raise OutputError(f"{folder.at(path)} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != 1:
        raise OutputError(
            f"{folder.at(path)} is of a format that pagemill {jobs.__version__} does not know"
        )
    if not _lists_files(content):
        raise OutputError(f"{folder.at(path)} lists files that are none of its folder")
    return content


def manifest_files(content: dict[str, Any]) -> list[FileEntry]:
    return [FileEntry.from_json(entry) for entry in content["files"]]


def _lists_files(content: dict[str, Any]) -> bool:
    """Whether all that it names are files of its own folder."""
    try:
        names = [entry.path for entry in manifest_files(content)]
    except (KeyError, TypeError):
        return False
    return all(isinstance(n, str) and n and PurePosixPath(n).name == n for n in names)


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
