"""The answers of a job, in the order of its input."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from jobs.errors import PackageMissing, UsageError
from jobs.formats import OutputFormat
from jobs.json_rows import json_lines
from jobs.results import PublishedVersion, open_partial

if TYPE_CHECKING:
    import pandas
    import polars

    from jobs.results import OutputRows
    from jobs.settings import Settings


class Results:
    """Rows that can be read again and again, as often as one likes.

    `for row in results` gives dicts, as `pagemill results` prints them, and holds a few hundred
    rows at a time; `arrow`, `pandas` and `polars` hold all of them.

    Examples:
        >>> results = job.results()
        >>> for row in results:
        ...     print(row["row_index"], row["text"])
        >>> frame = results.pandas(columns=["custom_id", "text"])
        >>> results.write("answers.parquet")

    Attributes:
        job_id: whose rows they are.
        version: of the job.
        schema: the columns, as Arrow has them; docs/output.md tells of each.
        path: the folder of Parquet files that holds them; None of rows of a job that runs.
    """

    def __init__(self, settings: Settings, rows: OutputRows) -> None:
        self._settings = settings
        self._rows = rows
        self.job_id: str = rows.job.id
        self.version: int = rows.version
        self.schema: pa.Schema = rows.schema
        self.path: str | None = str(rows.path) if isinstance(rows, PublishedVersion) else None

    def __repr__(self) -> str:
        partial = ", partial" if self.path is None else ""
        return f"Results({self.job_id!r}, version={self.version}{partial})"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each row as the JSON object of docs/output.md.

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

        Raises:
            PackageMissing: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401 (what pyarrow says without it helps nobody)
        except ImportError:
            raise _missing("pandas") from None
        frame: pandas.DataFrame = self.arrow(columns).to_pandas()
        return frame

    def polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """All rows as a data frame of Polars.

        Raises:
            PackageMissing: Polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise _missing("polars") from None
        frame = polars.from_arrow(self.arrow(columns))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def write(self, path: str | os.PathLike[str], format: OutputFormat | str | None = None) -> int:
        """Write a file, which is replaced as a whole or not at all; returns how many rows it has.

        Args:
            format: `parquet`, `jsonl`, `csv` or `openai`; by the name of the file if not given.

        Raises:
            UsageError: the format is not clear, or the file is the job's own input.
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
            target.refuse_input(rows.job.input_uri)
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

    @contextmanager
    def _opened(self) -> Iterator[OutputRows]:
        """A published version needs files alone. What there is of another is asked anew."""
        if self.path is not None:
            yield self._rows
            return
        from jobs.api.opening import opened

        with opened(self._settings) as deployment:
            job = deployment.store.job(self.job_id)
            yield open_partial(deployment.store, deployment.storage, job)


def _missing(package: str) -> PackageMissing:
    return PackageMissing(
        f"results().{package}() needs {package}, which is not installed: `pip install {package}` "
        "(arrow() and iteration work without it)"
    )
