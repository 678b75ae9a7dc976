"""Rows that a program reads: of a job, or of the scores of an evaluation."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import orjson
import pyarrow as pa

from jobs.errors import PackageMissing, UsageError
from jobs.formats import OutputFormat
from jobs.json_rows import json_lines

_Frame = TypeVar("_Frame")

if TYPE_CHECKING:
    import pandas
    import polars

    from jobs.cli.target import Target
    from jobs.results import OutputRows


class TableRows(ABC):
    """Rows that can be read again and again, as often as one likes.

    Attributes:
        schema: the columns, as Arrow has them.
    """

    schema: pa.Schema
    _called: ClassVar[str]  # how one comes by them, for errors

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each row as a JSON object.

        Raises:
            UsageError: a column has no form in JSON; Arrow holds it.
        """
        for table in self.tables():
            yield from map(orjson.loads, json_lines(table))

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows, a few thousand at a time.

        Raises:
            UsageError: there is no such column.
            OutputError: a file is missing or damaged.
        """
        self._schema_of(columns)
        with self._opened() as rows:
            yield from rows.groups(None if columns is None else list(columns))

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows as one table; all columns, unless some are named."""
        schema = self._schema_of(columns)
        tables = [table.cast(schema) for table in self.tables(columns)]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """All rows as a data frame of pandas.

        A column of integers that holds nulls has a nullable type, such as `Int64`.

        Raises:
            PackageMissing: pandas is not installed.
            UsageError: it has no form for a column.
        """
        try:
            import pandas  # noqa: F401 (what pyarrow says without it helps nobody)
        except ImportError:
            raise self._missing("pandas") from None
        return _converted("pandas", self.arrow(columns), _as_frame, (pa.ArrowException, ValueError))

    def polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """All rows as a data frame of Polars.

        Raises:
            PackageMissing: Polars is not installed.
            UsageError: it has no form for a column.
        """
        try:
            import polars
        except ImportError:
            raise self._missing("polars") from None
        refusals = (polars.exceptions.PolarsError, polars.exceptions.PanicException)
        frame = _converted("polars", self.arrow(columns), polars.from_arrow, refusals)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def write(self, path: str | os.PathLike[str], format: OutputFormat | str | None = None) -> int:
        """Write a file, which is replaced as a whole or not at all; returns how many rows it has.

        Args:
            format: `parquet`, `jsonl`, `csv` or `openai`; by the name of the file if not given.

        Raises:
            UsageError: the format is not clear, or cannot be, or the file is the rows' own input.
            StorageError: it cannot be written.
        """
        from jobs.cli.target import STDOUT, chosen_target
        from jobs.export import export_file

        if format not in (None, *OutputFormat):
            raise UsageError(f"format is {format!r}; it must be one of {', '.join(OutputFormat)}")
        form = None if format is None else OutputFormat(format)
        given = os.fspath(path)
        target = chosen_target(f"./{STDOUT}" if given == STDOUT else given, form, "format")
        with self._opened() as rows:
            self._check(target, rows)
            return export_file(rows, target.path or Path(given), target.form)

    def _schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        for name in columns:
            if name not in self.schema.names:
                raise UsageError(
                    f"there is no column {name!r}; there are {', '.join(self.schema.names)}"
                )
        return pa.schema([self.schema.field(name) for name in columns])

    def _missing(self, package: str) -> PackageMissing:
        return PackageMissing(
            f"{self._called}.{package}() needs {package}, which is not installed: `pip install "
            f"{package}` (arrow() and iteration work without it)"
        )

    @abstractmethod
    def _opened(self) -> AbstractContextManager[OutputRows]:
        """The rows, open as long as they are read."""

    @abstractmethod
    def _check(self, target: Target, rows: OutputRows) -> None:
        """See that the rows can be written there.

        Raises:
            UsageError: they cannot.
        """


def _converted(
    package: str,
    table: pa.Table,
    convert: Callable[[pa.Table], _Frame],
    refusals: tuple[type[BaseException], ...],
) -> _Frame:
    """The table in another form; names the column that has none."""
    try:
        return convert(table)
    except refusals as error:
        for field in table.schema:
            try:
                convert(table.select([field.name]))
            except refusals as refusal:
                reason = str(refusal).strip().partition("\n")[0]
                raise UsageError(
                    f"{package} cannot hold the column {field.name!r} ({field.type}): {reason}; "
                    "arrow() and write() can, and other columns can be named"
                ) from error
        raise


def _as_frame(table: pa.Table) -> pandas.DataFrame:
    """Integers beside nulls would become floats, which round large ones: seeds, for instance."""
    import pandas

    nullable = {
        getattr(pa, name.lower())(): getattr(pandas, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    }
    frame: pandas.DataFrame = table.to_pandas()
    names = [f.name for f in table.schema if f.type in nullable and table[f.name].null_count]
    exact = table.select(names).to_pandas(types_mapper=nullable.get)
    for name in names:
        frame[name] = exact[name]
    return frame
