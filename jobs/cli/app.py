"""All commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import jobs
from jobs.cli import (
    beat,
    cancel,
    database,
    delete,
    doctor,
    errors,
    estimate,
    evals,
    events,
    gc,
    listing,
    logs,
    notifications,
    pause,
    pull,
    report,
    results,
    retry,
    run,
    schedules,
    shell_init,
    status,
    submit,
    tail,
    wait,
    worker,
    workers,
)
from jobs.cli.group import Commands

app = typer.Typer(
    name="pagemill",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pagemill {jobs.__version__}")
        raise typer.Exit


@app.callback()
def pagemill(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="PAGEMILL_DEBUG", help="Show a traceback where a command fails."
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Answer files of prompts with a language model: a queue of jobs, workers, Parquet out.

    \b
    Example:
      pagemill run prompts.jsonl --model smollm2-135m

    \b
    Settings come from the environment:
      PAGEMILL_DATABASE_URL  where jobs are kept; SQLite in the user's data folder
      PAGEMILL_STORAGE_URL   folder of inputs and outputs; all workers reach it
      PAGEMILL_BROKER_URL    Redis that wakes workers; none: they poll SQL
    """


app.command("submit")(submit.submit)
app.command("run")(run.run)
app.command("estimate")(estimate.estimate)
app.command("status")(status.status)
app.command("wait")(wait.wait)
app.command("list")(listing.list_jobs)
app.command("results")(results.results)
app.command("report")(report.report)
app.command("tail")(tail.tail)
app.command("logs")(logs.logs)
app.command("errors")(errors.errors)
app.command("events")(events.events)
app.command("notifications")(notifications.notifications)
app.command("cancel")(cancel.cancel)
app.command("pause")(pause.pause)
app.command("resume")(pause.resume)
app.command("delete")(delete.delete)
app.command("gc")(gc.gc)
app.command("retry")(retry.retry)
app.command("worker")(worker.worker)
app.command("workers")(workers.workers)
app.command("pull")(pull.pull)
app.command("doctor")(doctor.doctor)
app.command("beat")(beat.beat)
app.command("shell-init")(shell_init.shell_init)
app.add_typer(evals.commands, name="eval")
app.add_typer(schedules.commands, name="schedule")
app.add_typer(database.commands, name="db")
