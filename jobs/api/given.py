"""Rows that a program has: in its memory, or as it makes them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from jobs.errors import InputError, StorageError, UsageError
from jobs.reading.sources import STDIN, Source
from jobs.scratch import scratch_folder

if TYPE_CHECKING:
    import pandas
    import polars

Rows: TypeAlias = "Iterable[Mapping[str, Any]]"
Input: TypeAlias = (
    "str | os.PathLike[str] | Rows | pa.Table | pa.RecordBatchReader | pandas.DataFrame | "
    "polars.DataFrame"
)
_JSON = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


@contextmanager
def opened_input(data: Any, given_format: object) -> Iterator[str | Source]:
    """Whatever rows may be given as, for `jobs.reading` to read.

    Dicts are read as they come. Tables are written to a temporary Parquet file first, by which
    every type of a column stays what it is.

    Raises:
        UsageError: it holds no rows.
    """
    if isinstance(data, str | os.PathLike):
        path = os.fspath(data)
        yield path if path != STDIN or isinstance(data, str) else f"./{STDIN}"
        return
    name = f"<{type(data).__name__}>"
    if given_format is not None:
        raise UsageError(f"format is for files; {name} needs none")
    batches = _batches(data, name)
    if batches is not None:
        with scratch_folder() as folder:
            path = os.path.join(folder, "rows.parquet")
            _write(batches, path, name)
            yield Source(name, (path,), os.path.getsize(path), filesystem=fs.LocalFileSystem())
    elif isinstance(data, Iterable) and not isinstance(data, Mapping | bytes | bytearray):
        yield DictSource(name, rows=data)
    else:
        raise UsageError(
            f"{name} holds no rows; give a path, dicts such as {{'prompt': '…'}} in a list or from "
            "an iterator, a pyarrow table, or a data frame of pandas or Polars"
        )


def _batches(data: Any, name: str) -> pa.RecordBatchReader | None:
    """The rows of a table, whoever made it; None if it is none."""
    home = type(data).__module__.partition(".")[0]
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif home == "pandas" and hasattr(data, "columns"):
        data = _of_pandas(data, name)
    elif home == "polars" and hasattr(data, "collect_schema"):
        if not hasattr(data, "to_arrow"):
            raise UsageError("a LazyFrame has no rows yet; give its .collect()")
        data = _of_polars(data, name)
    elif not isinstance(data, pa.Table) and hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(data)
        except pa.ArrowException as error:  # a column alone
            raise UsageError(
                f"{name} is no table: {error}; give it a name, in a data frame"
            ) from None
    return data.to_reader() if isinstance(data, pa.Table) else None


def _of_pandas(frame: pandas.DataFrame, name: str) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:  # a column of several types, say
        raise _unheld(name, error) from None


def _of_polars(frame: polars.DataFrame, name: str) -> pa.Table:
    for column, kind in frame.schema.items():
        if str(kind) == "Object":  # Arrow would be given the addresses of the objects
            raise _unheld(name, TypeError(f"{column!r} holds Python objects"))
    try:
        return frame.to_arrow()
    except (pa.ArrowException, ValueError, TypeError) as error:  # integers of 128 bits, say
        raise _unheld(name, error) from None


def _unheld(name: str, error: Exception) -> InputError:
    said = ", ".join(str(part) for part in error.args)
    return InputError(f"{name} has a column that Arrow cannot hold: {said}")


def _write(batches: pa.RecordBatchReader, path: str, name: str) -> None:
    try:
        with pq.ParquetWriter(path, batches.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
    except pa.ArrowException as error:
        raise InputError(f"{name} cannot be written as Parquet: {error}") from error
    except OSError as error:
        raise StorageError(
            f"{name} cannot be written to {path}: {error.strerror or error}; make room there, or "
            "name another folder in TMPDIR"
        ) from error


@dataclass(frozen=True, slots=True)
class DictSource(Source):
    """Dicts, read as JSON lines: what is refused in a file is refused here."""

    rows: Iterable[Any] = ()

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        with contextlib.closing(_Lines(self.name, self.rows)) as lines:
            yield cast(BinaryIO, lines)


class _Lines:
    """A stream of bytes over rows, of which it holds one at a time."""

    def __init__(self, name: str, rows: Iterable[Any]) -> None:
        self._lines = _as_json(name, rows)
        self._left = b""

    def read(self, size: int) -> bytes:
        found = [self._left]
        length = len(self._left)
        while length < size and (line := next(self._lines, None)) is not None:
            found.append(line)
            length += len(line)
        text = b"".join(found)
        self._left = text[size:]
        return text[:size]

    def close(self) -> None:
        self._lines.close()


def _as_json(name: str, rows: Iterable[Any]) -> Any:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InputError(
                f"row {number} of {name} is a {type(row).__name__}; a row is a dict, such as "
                "{'prompt': '…'}"
            )
        try:
            line = orjson.dumps(row if isinstance(row, dict) else dict(row), option=_JSON)
            # JSON has neither NaN, which often stands for what is missing, nor infinity.
            if b"null" in line and _has_infinity(row):
                raise TypeError("JSON has no infinity")
            yield line
        except TypeError as error:
            raise InputError(
                f"row {number} of {name} cannot be written as JSON: {error}; give texts, numbers, "
                "lists and dicts"
            ) from error


def _has_infinity(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_infinity, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_infinity, value))
    if hasattr(value, "tolist"):  # of numpy
        return _has_infinity(value.tolist())
    return isinstance(value, float) and math.isinf(value)
