"""`pagemill delete`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import completion
from jobs.cli.console import note, plural
from jobs.cli.deployment import opened
from jobs.cli.options import Json
from jobs.errors import JobNotFound, StateConflict
from jobs.states import how_to_end

if TYPE_CHECKING:
    from jobs.records import JobRecord
    from jobs.store import Store


def delete(
    job_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Ids of jobs; their starts are enough.",
            autocompletion=completion.ended_job_ids,
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; only a terminal is asked.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove jobs that have ended, with their answers, for good.

    A job that has not ended is refused: cancel it first. If one of several jobs is refused, none
    is deleted. Deleting twice does no harm. What was done to a job stays in `pagemill events`.

    \b
    Example:
      pagemill delete job_abcdefgh job_bcdefghi
    """
    from jobs.deletion import delete_jobs, finish_deletions

    with opened() as deployment:
        store = deployment.store
        jobs = {job.id: job for given in job_ids if (job := _ended(store, given))}
        if not jobs:
            finish_deletions(store, deployment.storage)
        else:
            if not yes and sys.stdin.isatty():
                _ask(list(jobs.values()))
            delete_jobs(store, deployment.storage, *jobs)
    for job_id in jobs:
        note(f"job {job_id} is deleted")
    if as_json:
        print(json.dumps([{"id": job_id} for job_id in jobs]))


def _ended(store: Store, given: str) -> JobRecord | None:
    """The job, or None if it was deleted before.

    Raises:
        StateConflict: it has not ended.
        JobNotFound: there never was such a job.
    """
    try:
        job = store.job(given)
    except JobNotFound:
        if not store.was_deleted(given):
            raise
        note(f"job {given} was deleted before")
        return None
    if not job.state.terminal:
        raise StateConflict(f"job {job.id} is {job.state}; {how_to_end(job.id, job.state)}")
    return job


def _ask(jobs: list[JobRecord]) -> None:
    for job in jobs:
        rows = plural(job.total_rows, "row")
        note(f"job {job.id}  {job.name or job.input_uri}  {job.state}, {rows}")
    typer.confirm(f"Delete {plural(len(jobs), 'job')} with all files?", abort=True, err=True)
