"""Rows of Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import InputError, RowError
from jobs.openai_lines import LINE_KEYS, is_batch_line
from jobs.prompts import PromptRules
from jobs.reading.batch_size import batch_rows
from jobs.reading.blocks import Block
from jobs.reading.carried_types import convert
from jobs.reading.columns import assign_columns
from jobs.reading.lines import MAX_LINE_BYTES
from jobs.reading.page_sizes import check_page_sizes
from jobs.reading.row_groups import read_row_groups
from jobs.reading.sources import Source
from jobs.reading.unpacking import UnpackedLimit
from jobs.rows import Row, refused
from jobs.validation import RowValidator

MAX_ROW_BYTES = MAX_LINE_BYTES  # of what the model would read
_BUFFER_BYTES = 1 << 20


class ParquetRows:
    """A `Reader` of a Parquet file, or of a folder of files with the same columns.

    Memory is bounded by batches: of a row group, so many rows are decoded at a time that they
    take about `BLOCK_BYTES` (see `batch_size`).

    Args:
        limit: of the bytes of all rows, decoded.

    Raises:
        InputError: a file is torn or no Parquet, or its columns cannot be used.
    """

    unit = "row"

    def __init__(self, source: Source, rules: PromptRules, limit: UnpackedLimit) -> None:
        self.name = source.name
        self.size = source.size
        self.position = 0
        self._source = source
        self._limit = limit
        self._validator = RowValidator(rules, collect_extra=False)
        self._file = _ParquetFile(source, source.paths[0])
        try:
            self._columns = assign_columns(source.name, self._file.schema, rules)
        except BaseException:
            self._file.close()
            raise
        self.carried = [field for _, field in self._columns.carried]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._file.close()

    def blocks(self) -> Iterator[Block]:
        line = unpacked = 0
        needed = list({*self._columns.read, *(name for name, _ in self._columns.carried)})
        for path in self._source.paths:
            if path != self._file.path:
                self._file.close()
                self._file = _ParquetFile(self._source, path)
                self._check_columns(needed)
            for batch in self._file.batches(needed):
                unpacked += batch.nbytes
                self._limit.check(unpacked)
                yield self._block(batch, line + 1)
                line += batch.num_rows
                self.position += batch.nbytes  # decoded: more than was read
                self.position = min(self.position, self.size or self.position)

    def hint(self) -> str:
        return ""

    def _check_columns(self, needed: list[str]) -> None:
        counts = Counter(self._file.schema.names)
        twice = [name for name in needed if counts[name] > 1]
        if twice:
            raise InputError(f"{self._file.path} has two columns {twice[0]!r}; rename one of them")
        missing = [name for name in needed if not counts[name]]
        if missing:
            raise InputError(
                f"{self._file.path} has no column {missing[0]!r}, which the first file of the "
                "folder has; all files of a folder must have the same columns"
            )
        if further := sorted(set(counts) - set(needed)):
            raise InputError(
                f"{self._file.path} has a column {further[0]!r}, which the first file of the "
                "folder has not; all files of a folder must have the same columns"
            )

    def _block(self, batch: pa.RecordBatch, first_line: int) -> Block:
        values = {name: _values(batch.column(name)) for name in self._columns.read}
        for name in self._columns.nested:
            values[name] = [without_nulls(value) for value in values[name]]
        rows = []
        plain: list[int | None] = []  # indices of the rows that are no lines of a batch file
        for i in range(batch.num_rows):
            fields = {name: column[i] for name, column in values.items()}
            if self._columns.mixed:
                is_line = is_batch_line(fields)
                plain.append(None if is_line else i)
                if not is_line:  # data then, which may hold anything
                    fields = {k: v for k, v in fields.items() if k not in LINE_KEYS}
            rows.append(self._row(first_line + i, fields))
        return Block(rows, self._carry(batch, plain))

    def _row(self, line: int, fields: dict[str, Any]) -> Row:
        for name, value in fields.items():
            if isinstance(value, RowError):
                error = RowError(value.code, f"{name} {value}", name)
                return self._validator.refuse(line, fields, error)
        row = self._validator.validate(line, fields)
        size = len(row.prompt or row.messages or b"") + len(row.chat or b"")
        if size > MAX_ROW_BYTES:
            error = RowError(
                "line_too_long",
                f"the row asks with {size:,} bytes; the limit is {MAX_ROW_BYTES >> 20} MiB",
            )
            return refused(line, error, row.custom_id)
        return row

    def _carry(self, batch: pa.RecordBatch, plain: list[int | None]) -> pa.RecordBatch | None:
        if not self.carried:
            return None
        columns = []
        for name, field in self._columns.carried:
            column = batch.column(name)
            if column.type != field.type:
                try:
                    column = convert(column, field.type)
                except (pa.ArrowException, ValueError):
                    raise InputError(
                        f"the column {name!r} of {self._file.path} is {column.type}, but "
                        f"{field.type} in the first file; all files of a folder must have the "
                        "same columns"
                    ) from None
            if self._columns.mixed and name in LINE_KEYS:
                column = column.take(pa.array(plain, pa.int64()))
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(self.carried))


class _ParquetFile:
    """One open Parquet file, whose every failure names it."""

    def __init__(self, source: Source, path: str) -> None:
        self.path = path
        self._source = source
        self._stream = source.open_at_random(path)
        try:
            with _decoding(path):
                self._file = _open(self._stream)
                self.schema: pa.Schema = self._file.schema_arrow
                self.schema.names  # noqa: B018  # a damaged name fails here
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        self._file.close()
        self._stream.close()

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _decoding(self.path):
            groups = self._file.metadata.num_row_groups
            with self._source.open_at_random(self.path) as stream:
                described = read_row_groups(stream)
        for group in range(groups):
            with _decoding(self.path):
                info = next(described)
                reopen = partial(self._source.open_at_random, self.path)
                check_page_sizes(self.path, reopen, info, columns)
                rows = batch_rows(info, group, columns, self._with_dictionaries)
                batches = self._file.iter_batches(rows, [group], columns, use_threads=False)
            while True:
                with _decoding(self.path):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch

    @contextmanager
    def _with_dictionaries(self, leaves: list[str]) -> Iterator[pq.ParquetFile]:
        """The same file, with some of its columns left as dictionaries."""
        with self._source.open_at_random(self.path) as stream, _open(stream, leaves) as file:
            yield file


def _open(stream: Any, leaves: list[str] | None = None) -> pq.ParquetFile:
    # Buffered, not read ahead: a whole column chunk would be held else.
    return pq.ParquetFile(
        stream, read_dictionary=leaves, buffer_size=_BUFFER_BYTES, pre_buffer=False
    )


@contextmanager
def _decoding(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        if "decrypt" in reason[0]:
            raise InputError(
                f"{path} is encrypted, and pagemill has no key: write it without encryption"
            ) from error
        raise InputError(
            f"{path} is not a whole Parquet file: {reason[0][:300]}; write or copy it again"
        ) from error


def without_nulls(value: Any) -> Any:
    """A value without the keys that a struct has to have: objects of one column may differ."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _values(column: pa.Array) -> list[Any]:
    """Python values; in place of one that cannot be read (text that is no UTF-8) a RowError."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (UnicodeDecodeError, ValueError, OverflowError, pa.ArrowException):
        return [_value(column, i) for i in range(len(column))]


def _value(column: pa.Array, index: int) -> Any:
    try:
        return column[index].as_py()
    except UnicodeDecodeError as error:
        return RowError("invalid_utf8", f"is not UTF-8: byte {error.object[error.start]:#04x}")
    except (ValueError, OverflowError, pa.ArrowException) as error:
        return RowError("unreadable_value", f"cannot be read: {error}")
