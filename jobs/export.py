"""Output rows as files, or to a stream, in any of the formats of `jobs.formats`."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

from jobs.csv_rows import csv_lines, header
from jobs.errors import StorageError, UsageError
from jobs.files import discard, replacing, sync_folder
from jobs.formats import ENDINGS, OutputFormat
from jobs.json_rows import json_lines
from jobs.openai_output import columns_for, openai_lines
from jobs.results import OutputRows, PublishedVersion


def export_file(rows: OutputRows, path: Path, form: OutputFormat) -> int:
    """Write rows to a file, which is replaced at the end or not at all; returns how many.

    Raises:
        UsageError: the path is a folder.
        StorageError: the file cannot be written.
    """
    path = path.expanduser().resolve()
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the file to write in it")
    try:
        with replacing(path) as file:
            return export_stream(rows, file, form)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def export_folder(version: PublishedVersion, folder: Path, form: OutputFormat) -> tuple[int, int]:
    """Write each file of a version to one of its own; all of them appear at the end or none.

    Args:
        folder: of which only an empty one may be there. It stays the same one: it may be
            somebody's current folder, or where a disk is mounted.

    Returns:
        How many rows, and how many files.

    Raises:
        StorageError: they cannot be written.
    """
    there = folder.is_dir()
    name = f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp"
    temporary = folder / name if there else folder.with_name(name)
    written = files = 0
    try:
        temporary.mkdir()
        for files, part in enumerate(version.parts(), start=1):
            path = temporary / f"part-{files - 1:05d}{ENDINGS[form]}"
            written += export_file(part, path, form)
        sync_folder(temporary)
        if there:
            _move_files(temporary, folder)
        else:
            temporary.rename(folder)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return written, files


def _move_files(source: Path, target: Path) -> None:
    """Move all files into another folder, or none of them."""
    moved: list[Path] = []
    try:
        for path in sorted(source.iterdir()):
            moved.append(target / path.name)
            path.rename(moved[-1])
        sync_folder(target)
    except BaseException:
        for path in moved:
            discard(path)
        raise


def export_stream(rows: OutputRows, stream: BinaryIO, form: OutputFormat) -> int:
    """Write rows to an open stream; returns how many.

    Raises:
        UsageError: a column has no form in JSON or CSV.
        OSError: the stream takes no more; a BrokenPipeError if its reader went away.
    """
    if form is OutputFormat.PARQUET:
        return _write_parquet(rows, stream)
    columns = columns_for(rows.job) if form is OutputFormat.OPENAI else None
    if form is OutputFormat.CSV:
        stream.write(header(rows.schema))
    written = 0
    for table in rows.groups(columns):
        if form is OutputFormat.OPENAI:
            stream.writelines(openai_lines(table, rows.job, rows.version))
        else:
            stream.writelines(csv_lines(table) if form is OutputFormat.CSV else json_lines(table))
        written += table.num_rows
    return written


def _write_parquet(rows: OutputRows, stream: BinaryIO) -> int:
    written = 0
    with pq.ParquetWriter(_Counted(stream), rows.schema, compression="zstd") as writer:
        for table in rows.groups():
            writer.write_table(table.cast(rows.schema), row_group_size=max(1, table.num_rows))
            written += table.num_rows
    return written


class _Counted:
    """A stream that knows its position, which a pipe does not: Parquet's footer needs it."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._position = 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """The stream belongs to the caller."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
