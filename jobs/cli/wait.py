"""`pagemill wait`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli.console import detached, note
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import JobId, Json
from jobs.cli.progress import progress_display
from jobs.cli.shapes import exit_code, print_status, summary
from jobs.cli.watching import follow
from jobs.cli.why_it_waits import telling_why_it_waits, why_it_waits
from jobs.ctrl_c import INTERRUPTED
from jobs.errors import DatabaseUnavailable

TIMED_OUT = 124  # as timeout(1) ends


def wait(
    job_id: JobId,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Give up waiting; ends with 124.")
    ] = None,
    by_exit_status: Annotated[
        bool,
        typer.Option(
            "--exit-status/--no-exit-status",
            help="Tell by the exit code how the job ended, or end with 0 if it has.",
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Wait until a job has ended.

    Ends with 0 if every row was answered, 1 if the job or some rows failed, 2 if it was cancelled
    or expired; with --no-exit-status with 0 however it ended. Ctrl-C ends the waiting (130), not
    the job. With --json, prints the job as `status` does when the waiting is over.

    \b
    Examples:
      pagemill wait job_abcdefgh && pagemill results job_abcdefgh -o a.parquet
      pagemill wait job_abcdefgh --no-exit-status --timeout 3600
      pagemill wait job_abcdefgh --json | jq .device
    """
    with opened() as deployment:
        job_id = deployment.store.job(job_id).id
        try:
            with progress_display() as display:
                ended = follow(
                    deployment, job_id, telling_why_it_waits(deployment, display), timeout
                )
        except KeyboardInterrupt:
            note(
                detached(
                    f"job {job_id}", f"pagemill wait {job_id}", end=f"pagemill cancel {job_id}"
                )
            )
            raise typer.Exit(INTERRUPTED) from None
        if ended is not None:
            deployment.tell_urls(ended.job)
        if as_json:
            print_status(deployment, job_id)
        if ended is None:
            note(f"Job {job_id} has not ended within {timeout:g} s; {_why(deployment, job_id)}")
            raise typer.Exit(TIMED_OUT)
        note(summary(ended.job))
        raise typer.Exit(exit_code(ended.job) if by_exit_status else 0)


def _why(deployment: Deployment, job_id: str) -> str:
    try:
        progress = deployment.store.progress(job_id)
        return why_it_waits(deployment, progress) or "it goes on"
    except DatabaseUnavailable as error:
        return f"the {error}"
