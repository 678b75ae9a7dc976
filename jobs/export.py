"""Output rows as one Parquet file or as JSONL, to a file or a stream."""

from __future__ import annotations

import base64
import contextlib
import datetime
import decimal
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import StorageError, UsageError
from jobs.formats import Format
from jobs.results import OutputRows
from jobs.schema import EXTRA_KEYS

_JSON_ROWS = 256  # rows that are Python objects at once


def export_file(rows: OutputRows, path: Path, form: Format) -> int:
    """Write rows to a file, which is replaced at the end or not at all; returns how many.

    Raises:
        UsageError: the path is a folder.
        StorageError: the file cannot be written.
    """
    path = path.expanduser().resolve()
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the file to write in it")
    try:
        with _replacing(path) as file:
            return export_stream(rows, file, form)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def export_stream(rows: OutputRows, stream: BinaryIO, form: Format) -> int:
    """Write rows to an open stream; returns how many."""
    return _write_parquet(rows, stream) if form is Format.PARQUET else _write_jsonl(rows, stream)


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """One JSON object a row, each with its line break; see docs/output.md for the types."""
    expand = _is_text(table.schema, EXTRA_KEYS)
    plain = pa.schema([f.with_type(_json_type(f.type)) for f in table.schema])
    for batch in table.cast(plain, safe=False).to_batches(max_chunksize=_JSON_ROWS):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            if expand:
                row[EXTRA_KEYS] = _json_object(row[EXTRA_KEYS])
            yield orjson.dumps(
                row, default=_json_value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
            )


def _write_parquet(rows: OutputRows, stream: BinaryIO) -> int:
    written = 0
    with pq.ParquetWriter(_Counted(stream), rows.schema, compression="zstd") as writer:
        for table in rows.groups():
            writer.write_table(table.cast(rows.schema), row_group_size=max(1, table.num_rows))
            written += table.num_rows
    return written


def _write_jsonl(rows: OutputRows, stream: BinaryIO) -> int:
    written = 0
    for table in rows.groups():
        stream.writelines(json_lines(table))
        written += table.num_rows
    return written


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():  # /dev/null, a named pipe
        with open(path, "wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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


def _is_text(schema: pa.Schema, name: str) -> bool:
    return name in schema.names and pa.types.is_string(schema.field(name).type)


def _json_object(text: str | None) -> Any:
    """The extra keys of a JSONL row. A Parquet column of that name may hold any text."""
    if text is None or not text.startswith("{"):
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return orjson.Fragment(text)


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Python's times have no nanoseconds: these types become the same in microseconds."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_dictionary(kind):
        return _json_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([f.with_type(_json_type(f.type)) for f in kind])
    if types.is_map(kind):
        return pa.map_(_json_type(kind.key_type), _json_type(kind.item_type))
    for test, make in _LISTS:
        if test(kind):
            return make(kind.value_field.with_type(_json_type(kind.value_type)))
    return kind


_LISTS: list[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = [
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
]


def _json_value(value: Any) -> Any:
    """What JSON has no type for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
