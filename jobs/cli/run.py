"""`pagemill run`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import layout
from jobs.cli.answers import columns_of, shown_answer
from jobs.cli.console import console, note, one_line, table
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import EngineOptions, SubmitOptions, with_groups
from jobs.cli.progress import Display, progress_display
from jobs.cli.results import write_rows
from jobs.cli.shapes import exit_code, output_path, summary
from jobs.cli.submitting import submit_job
from jobs.cli.supervising import Interruptions, Supervisor
from jobs.cli.target import Target, chosen_target
from jobs.cli.why_it_waits import telling_of_slot
from jobs.cli.worker import worker_command
from jobs.cli.worker_process import WorkerProcess
from jobs.errors import StorageError, UsageError
from jobs.formats import OutputFormat
from jobs.kinds import kind_of_job

if TYPE_CHECKING:
    from rich.table import Table

    from jobs.records import JobRecord
    from jobs.results import PublishedVersion

_SHOWN_ROWS = 5


@with_groups
def run(
    options: SubmitOptions,
    engine: EngineOptions,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Write the answers to this file too; - is stdout.",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option(
            help="parquet, jsonl, csv or openai; by PATH's name if not given, and JSONL on stdout.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Submit a file, answer it here, and wait until it is done.

    A worker of our own answers it. Ends as `wait` does. Ctrl-C finishes the chunks that are being
    worked on and leaves the job resumable; a second Ctrl-C leaves at once.

    \b
    Examples:
      pagemill run prompts.jsonl --model smollm2-135m
      pagemill run reviews.parquet --model ./llama -o answers.parquet
    """
    target = None if output is None else chosen_target(output, output_format, "--output-format")
    if target is not None:
        target.refuse_input(options.file)
    with opened(create=True) as deployment:
        job = submit_job(deployment, options, answered_here=True)
        if not job.state.terminal:  # one of the same idempotency key may have ended long ago
            job = _answer(deployment, job, engine)
        note(summary(job))
        if job.published_version is not None:
            _deliver(deployment, job, target)
        deployment.tell_urls(job)
        raise typer.Exit(exit_code(job))


def _answer(deployment: Deployment, job: JobRecord, engine: EngineOptions) -> JobRecord:
    note(f"job {job.id}, answered by a worker whose log is {log_of(deployment, job)}")
    return answer(deployment, job, engine, progress_display())


def answer(
    deployment: Deployment,
    job: JobRecord,
    engine: EngineOptions,
    displaying: AbstractContextManager[Display],
) -> JobRecord:
    """Answer a job with a worker process of our own, and wait until it has ended.

    Raises:
        WorkerLeft: the worker left, or was told to leave, before that.
    """
    command = worker_command(
        job.model, "--exit-when-done", job.id, "--watch-parent", *engine.arguments()
    )
    worker = WorkerProcess(command, deployment.settings.to_env(), log_of(deployment, job))
    interruptions = Interruptions()
    with interruptions.caught():
        worker.start()
        try:
            with displaying as display:
                # Another job may have the worker for itself: there is one queue.
                display = telling_of_slot(deployment, display)
                return Supervisor(deployment, job, worker, display, interruptions).run()
        finally:
            worker.close()


def log_of(deployment: Deployment, job: JobRecord) -> Path:
    """Where the worker logs."""
    return deployment.storage.root / layout.run_log(job.id)


def _deliver(deployment: Deployment, job: JobRecord, target: Target | None) -> None:
    """Write the answers where they were asked for, and show the first of them in any case.

    Raises:
        StorageError: the file could not be written.
    """
    from jobs.results import open_version

    published = open_version(deployment.storage, job)
    failure: StorageError | UsageError | None = None
    if target is not None:
        try:
            write_rows(published, target)
        except (StorageError, UsageError) as error:
            failure = error
    _show(deployment, job, published, to_stderr=target is not None and target.path is None)
    if failure is not None:
        raise StorageError(
            f"{failure}; the answers are kept, and `pagemill results {job.id} -o PATH` writes "
            "them to another file"
        ) from failure


def _show(
    deployment: Deployment, job: JobRecord, published: PublishedVersion, to_stderr: bool
) -> None:
    stream = sys.stderr if to_stderr else sys.stdout
    shown = console(stream)
    shown.print(_first_answers(published))
    shown.print(f"output: {output_path(job, deployment.storage)}", soft_wrap=True)


def _first_answers(published: PublishedVersion) -> Table:
    shown = table("row", "custom_id", "finish", "tokens", "answer", right=("row", "tokens"))
    columns = columns_of(kind_of_job(published.job.options))
    rows = next(published.groups(columns)).slice(0, _SHOWN_ROWS).to_pylist()
    for row in rows:
        shown.add_row(
            str(row["row_index"]),
            one_line(row["custom_id"] or ""),
            row["finish_reason"] or "",
            str(row["completion_tokens"]),
            shown_answer(row),
        )
    return shown
