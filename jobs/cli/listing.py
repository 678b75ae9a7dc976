"""`pagemill list`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jobs.cli.console import note, show, table
from jobs.cli.deployment import opened
from jobs.cli.options import Json
from jobs.cli.shapes import job_json
from jobs.states import JobState


def list_jobs(
    state: Annotated[
        list[JobState] | None, typer.Option(help="Only jobs in this state; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      pagemill list --state in_progress --state queued
      pagemill list --json | jq -r '.[].id'
    """
    with opened() as deployment:
        jobs = deployment.store.list_jobs(state or (), limit)
        storage = deployment.storage
    if as_json:
        print(json.dumps([job_json(job, storage) for job in jobs]))
        return
    if not jobs:
        note("no jobs")
        return
    shown = table(
        "id", "state", "rows", "errors", "model", "name", "created", right=("rows", "errors")
    )
    for job in jobs:
        shown.add_row(
            job.id,
            job.state,
            f"{job.counts.rows:,}/{job.total_rows:,}",
            f"{job.counts.failed:,}",
            job.model,
            job.name or "",
            job.created_at.astimezone().isoformat(" ", "seconds"),
        )
    show(shown)
