"""`pagemill tail`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.answers import columns_of, shown_answer
from jobs.cli.console import detached, note, one_line, plural, say
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import JobId, Json
from jobs.cli.progress import Display
from jobs.cli.watching import follow
from jobs.cli.why_it_waits import telling_why_it_waits
from jobs.ctrl_c import INTERRUPTED
from jobs.errors import DatabaseUnavailable, StorageUnavailable
from jobs.kinds import kind_of_job

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.finished_rows import FinishedRows
    from jobs.records import JobProgress, JobRecord

LOOK_SECONDS = 1.0  # workers write down what is finished every two seconds
# A job of millions of rows has so many chunks that a look takes long: most of the time we wait.
_WAITS = 5


def tail(
    job_id: JobId,
    from_the_start: Annotated[
        bool, typer.Option("--all", help="Begin with the rows that are finished by now.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Follow the rows of a job as they finish, to its end.

    They come in no particular order. A line a row: its number, custom_id, finish reason, tokens and
    the start of the answer, or the error. With --json, each row as in `pagemill results`. Rows that
    were refused at submit are not among them (`pagemill errors` lists them). Ctrl-C ends the
    watching (130), not the job.

    \b
    Examples:
      pagemill tail job_abcdefgh
      pagemill tail job_abcdefgh --all --json | jq -r .text
    """
    from jobs.finished_rows import FinishedRows

    with opened() as deployment:
        job = deployment.store.job(job_id)
        rows = FinishedRows(
            deployment.store, deployment.storage, job, from_the_start=from_the_start
        )
        if job.state.terminal and not from_the_start:
            note(
                f"job {job.id} has ended ({job.state}); `pagemill results {job.id}` reads its rows"
            )
            return
        printing = _Printing(job, rows, as_json)
        try:
            ended = follow(deployment, job.id, _displaying(deployment, printing))
            printing.print(rows.last())
        except KeyboardInterrupt:
            json_too = " --json" if as_json else ""
            note(detached(f"job {job.id}", f"pagemill tail {job.id}{json_too}"))
            raise typer.Exit(INTERRUPTED) from None
    assert ended is not None  # there is no timeout
    note(f"job {job.id} has ended ({ended.job.state}); {plural(printing.printed, 'row')} shown")


class _Printing:
    """Prints rows.

    Attributes:
        printed: how many.
    """

    def __init__(self, job: JobRecord, rows: FinishedRows, as_json: bool) -> None:
        self.printed = 0
        self._rows = rows
        self._columns = columns_of(kind_of_job(job.options))
        self._as_json = as_json

    def print(self, tables: Iterable[pa.Table]) -> None:
        from jobs.json_rows import json_lines

        for table in tables:
            if self._as_json:
                sys.stdout.buffer.writelines(json_lines(table))
            else:
                for row in table.select(self._columns).to_pylist():
                    tokens = plural(row["completion_tokens"], "token")
                    name = f"  {one_line(row['custom_id'])}" if row["custom_id"] else ""
                    say(
                        f"row {row['row_index']}{name}  {row['finish_reason']}  {tokens}  "
                        f"{shown_answer(row)}"
                    )
            sys.stdout.flush()
            self.printed += table.num_rows

    def look(self) -> None:
        self.print(self._rows.new())


def _displaying(deployment: Deployment, printing: _Printing) -> Display:
    next_at = 0.0
    waits = False

    def show(progress: JobProgress) -> None:
        nonlocal next_at, waits
        began = time.monotonic()
        if began < next_at or progress.job.state.terminal:
            return
        try:
            printing.look()
            waits = False
        except (DatabaseUnavailable, StorageUnavailable) as error:
            # The next look finds what this one missed.
            if not waits:
                note(f"Waiting: {error}")
            waits = True
        next_at = time.monotonic() + max(LOOK_SECONDS, _WAITS * (time.monotonic() - began))

    return telling_why_it_waits(deployment, show)
