"""The answers of a job, in the order of its input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.api.table_rows import TableRows
from jobs.results import PublishedVersion, open_partial

if TYPE_CHECKING:
    from jobs.cli.target import Target
    from jobs.results import OutputRows
    from jobs.settings import Settings


class Results(TableRows):
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

    _called = "results()"

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

    def _check(self, target: Target, rows: OutputRows) -> None:
        target.refuse_input(rows.job.input_uri)
