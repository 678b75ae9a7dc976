"""Parquet files of output rows: the part of a chunk, a merged window, a published file.

All of them have the output schema of their job and say in their metadata whose rows they hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import jobs
from jobs import layout
from jobs.errors import OutputError
from jobs.job_folder import JobFolder
from jobs.kinds import JobKind
from jobs.parquet_files import open_parquet
from jobs.records import ChunkLease
from jobs.schema import (
    CHAT,
    COMPLETION,
    EMBEDDINGS,
    ERROR,
    NORMALIZED,
    RESULT,
    carried_fields,
    kind_of_copy,
    output_schema,
    own_fields,
)

READ_ROWS = 1024  # rows that are read at once of a file that need not fit in memory
_COMPRESSION = "zstd"
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the metadata of an output file says, under the keys `pagemill.<name>`.

    Attributes:
        version: version of the job that computed the rows.
        software: version of pagemill that wrote the file.
        fingerprint: of the job (`jobs.fingerprint`).
        computation: what else decided the answers where they were computed (see `jobs.spool`),
            if one value holds for all rows of the file.
    """

    job: str
    version: int
    model: str
    software: str = jobs.__version__
    fingerprint: str | None = None
    computation: str | None = None

    def metadata(self) -> dict[str, str]:
        values = {
            "job": self.job,
            "version": str(self.version),
            "model": self.model,
            "software": self.software,
            "fingerprint": self.fingerprint,
            "computation": self.computation,
        }
        return {f"pagemill.{name}": value for name, value in values.items() if value is not None}


def read_chunk_input(folder: JobFolder, input_path: str, ordinal: int) -> pa.Table:
    """The rows of one chunk: one row group of the normalized copy; nothing else is read.

    Columns of `NORMALIZED` that a copy of an earlier version of pagemill lacks are null.

    Raises:
        OutputError: the copy is missing, damaged, or has no such row group.
    """
    with open_chunk_inputs(folder, input_path) as copy:
        return copy.rows(ordinal)


@contextlib.contextmanager
def open_chunk_inputs(folder: JobFolder, input_path: str) -> Iterator[ChunkInputs]:
    """The normalized copy, for those who read many chunks of it.

    Its footer grows with the number of chunks, so that to read it again for each of them would
    take a time that grows with the square of the job.
    """
    with open_parquet(folder, input_path) as file:
        yield ChunkInputs(file, str(folder.at(input_path)))


class ChunkInputs:
    """The rows of each chunk, in the normalized copy."""

    def __init__(self, file: pq.ParquetFile, name: str) -> None:
        self._file = file
        self._name = name

    def rows(self, ordinal: int) -> pa.Table:
        """As `read_chunk_input` gives them."""
        rows = self._file.read_row_group(self._known(ordinal))
        for field in NORMALIZED:
            if field.name not in rows.schema.names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows

    def indices(self, ordinal: int) -> pa.ChunkedArray:
        """The `row_index` of each of these rows."""
        return self._file.read_row_group(self._known(ordinal), ["row_index"])["row_index"]

    def _known(self, ordinal: int) -> int:
        if not 0 <= ordinal < self._file.num_row_groups:
            raise OutputError(
                f"{self._name} has {self._file.num_row_groups} row groups, none for chunk "
                f"{ordinal}; it is not the copy that this job was planned with"
            )
        return ordinal


def job_schema(folder: JobFolder, input_path: str) -> pa.Schema:
    """The output schema of a job, from its normalized copy."""
    with open_parquet(folder, input_path) as file:
        schema = file.schema_arrow
    return output_schema(carried_fields(schema), kind_of_copy(schema))


def write_part(
    folder: JobFolder,
    lease: ChunkLease,
    rows: pa.Table,
    results: pa.Table,
    computation: str | None = None,
) -> str:
    """Write the part of a finished chunk, in the order of its rows; returns its path.

    Args:
        rows: the chunk's row group of the normalized copy.
        results: the outcome of each of these rows, of the schema `RESULT`, in any order.

    Raises:
        OutputError: a row has no result, or a result belongs to no row.
        StorageError: the part cannot be written.
    """
    wanted, found = (set(t.column("row_index").to_pylist()) for t in (rows, results))
    missing, foreign = sorted(wanted - found), sorted(found - wanted)
    if missing or foreign or results.num_rows != len(found):
        raise OutputError(
            f"chunk {lease.chunk_id}: {len(wanted)} rows, {results.num_rows} results; "
            f"rows without a result: {some(missing)}; results without a row: {some(foreign)}"
        )
    table = answered(rows, results, lease.model)
    path = layout.part(lease.chunk_id, lease.epoch)
    facts = FileFacts(lease.job_id, lease.version, lease.model, computation=computation)
    write_output(folder, path, [table], table.schema, facts)
    return path


def answered(rows: pa.Table, results: pa.Table, model: str) -> pa.Table:
    """Output rows for those rows of a normalized copy that have a result, in the same order.

    An error that names no line gets the line of its row.
    """
    places = {row: place for place, row in enumerate(results.column("row_index").to_pylist())}
    found = [places.get(row) for row in rows.column("row_index").to_pylist()]
    if None in found:
        rows = rows.filter(pa.array([place is not None for place in found], pa.bool_()))
    ours = results.take(pa.array([p for p in found if p is not None], pa.int64()))
    kind = kind_of_copy(rows.schema)
    columns = {name: ours.column(name) for name in RESULT.names}
    columns["error"] = _with_lines(ours.column("error"), rows.column("line"))
    columns["custom_id"] = rows.column("custom_id")
    columns["model"] = pa.array([model] * rows.num_rows, pa.string())
    columns["endpoint"] = _endpoints(rows, kind)
    carried = [rows.column(i) for i in range(rows.num_columns) if _is_carried(rows.schema[i])]
    schema = output_schema(carried_fields(rows.schema), kind)
    ours_first = [columns[field.name] for field in own_fields(kind)]
    return pa.table([*ours_first, *carried], schema=schema)


def write_output(
    folder: JobFolder,
    path: str,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    facts: FileFacts,
) -> int:
    """Write output rows, one row group a table; returns how many rows.

    Raises:
        StorageError: the file cannot be written.
    """
    rows = 0
    described = schema.with_metadata({**(schema.metadata or {}), **facts.metadata()})
    with (
        folder.create(path) as file,
        pq.ParquetWriter(file, described, compression=_COMPRESSION) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(described), row_group_size=max(1, table.num_rows))
            rows += table.num_rows
    return rows


def read_batches(
    folder: JobFolder, path: str, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of an output file in their order, with bounded memory.

    Args:
        schema: columns that are not in the file are null, types are cast to it; None takes the
            file as it is.
    """
    with open_parquet(folder, path) as file:
        for batch in file.iter_batches(batch_size=READ_ROWS):
            yield batch if schema is None else _aligned(batch, schema, path)


def read_groups(
    folder: JobFolder, path: str, schema: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The row groups of an output file, as `read_batches` gives its rows.

    Args:
        columns: those to read; None reads all of `schema`.
    """
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    with open_parquet(folder, path) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns)
            if columns is not None:
                # Arrow reads the field of a struct, too, whose path is a column's name.
                rows = rows.select([name for name in columns if name in rows.schema.names])
            yield _aligned(rows, wanted, path)


def _aligned(rows: _Rows, schema: pa.Schema, path: str) -> _Rows:
    unknown = sorted(set(rows.schema.names) - set(schema.names))
    if unknown:
        raise OutputError(f"{path} has columns that its job has not: {', '.join(unknown)}")
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        # Not `pa.nulls`: it makes fields null that a struct declares to be never null.
        else pa.array([None] * rows.num_rows, field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


def some(numbers: list[int], most: int = 5) -> str:
    """The first few of many numbers, for a message."""
    shown = ", ".join(map(str, numbers[:most])) or "none"
    return shown if len(numbers) <= most else f"{shown} and {len(numbers) - most} more"


def _endpoints(rows: pa.Table, kind: JobKind) -> pa.Array | pa.ChunkedArray:
    """What each row asked for; OpenAI has no word for scores."""
    if kind is JobKind.GENERATE:
        return pc.if_else(rows.column("messages").is_valid(), CHAT, COMPLETION)
    return pa.array([EMBEDDINGS if kind is JobKind.EMBED else None] * rows.num_rows, pa.string())


def _with_lines(errors: pa.ChunkedArray, lines: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if errors.null_count == len(errors):
        return errors
    whole: pa.StructArray = errors.combine_chunks()
    fields = {field.name: whole.field(field.name) for field in ERROR}
    fields["line"] = pc.coalesce(fields["line"], lines.combine_chunks())
    return pa.StructArray.from_arrays(
        list(fields.values()), fields=list(ERROR), mask=whole.is_null()
    )


def _is_carried(field: pa.Field) -> bool:
    return bool(carried_fields(pa.schema([field])))
