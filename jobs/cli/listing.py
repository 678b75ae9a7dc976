"""`pagemill list`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import completion
from jobs.cli.console import keep_whole, note, one_line, show, squeezable, table
from jobs.cli.deadline import parse_since
from jobs.cli.deployment import model_name, opened
from jobs.cli.options import Json
from jobs.cli.shapes import listed_json, shown_state, unanswered
from jobs.states import JobState

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from jobs.records import JobRecord


def list_jobs(
    state: Annotated[
        list[JobState] | None,
        typer.Option(
            metavar="STATE",
            help=f"Only jobs in this state; repeatable: {', '.join(JobState)}.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Only jobs of this model.", autocompletion=completion.models
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only jobs with this text in their name.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Only jobs submitted since then: 90m, 8h, 2d ago, or a time like 2030-01-31.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      pagemill list --state in_progress --state queued
      pagemill list --model smollm2-135m --name nightly --since 2d
      pagemill list --json | jq -r '.[].id'
    """
    with opened() as deployment:
        store = deployment.store
        jobs = store.list_jobs(
            state or (),
            limit,
            model=None if model is None else model_name(model),
            name=name,
            # By the clock that the times of jobs are from.
            since=None if since is None else parse_since(since, store.now()),
        )
        storage = deployment.storage
    if as_json:
        print(json.dumps([listed_json(job, storage) for job in jobs]))
        return
    if not jobs:
        wanted = any(value is not None for value in (model, name, since)) or state
        note("no such jobs" if wanted else "no jobs")
        return
    show(_table(jobs))


def _table(jobs: list[JobRecord]) -> Table:
    """`rows` are those answered, of all; `errors` are those that ended without an answer."""
    named = any(job.name for job in jobs)
    columns = ["id", "state", "rows", "errors", "created", "model", *(["name"] if named else [])]
    shown = table(*columns, right=("rows", "errors"))
    for job in jobs:
        cells: list[str | Text] = [
            job.id,
            shown_state(job),
            f"{job.counts.completed:,}/{job.total_rows:,}",
            f"{unanswered(job.counts):,}",
            job.created_at.astimezone().strftime("%Y-%m-%d %H:%M"),
            squeezable(job.model),
            *([squeezable(one_line(job.name or ""))] if named else []),
        ]
        shown.add_row(*cells)
    keep_whole(shown, "id", "state", "rows", "errors", "created")
    return shown
