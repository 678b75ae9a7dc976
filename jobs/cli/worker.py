"""`pagemill worker`."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.deployment import model_name, opened
from jobs.cli.log_options import LogFormat, LogLevel
from jobs.cli.options import EngineOptions, Model, with_groups

if TYPE_CHECKING:
    from jobs.records import JobRecord


def worker_command(model: str, *arguments: str) -> list[str]:
    """The command line of a worker process; this process never imports what it runs."""
    return [sys.executable, "-P", "-m", "worker", "--model", model, *arguments]


def worker_hint(job: JobRecord) -> str:
    """What to type for a worker that answers a job and leaves."""
    return f"pagemill worker --model {shlex.quote(job.model)} --exit-when-done {job.id}"


@with_groups
def worker(
    model: Model,
    engine: EngineOptions,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Chunks that are worked on at once.")
    ] = None,
    exit_when_done: Annotated[
        str | None, typer.Option(metavar="ID", help="Leave once this job has ended.")
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(envvar="PAGEMILL_LOG_FORMAT", help="Lines for people (text), or JSON."),
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(envvar="PAGEMILL_LOG_LEVEL", help="How much is logged.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="PAGEMILL_METRICS_PORT",
            min=0,
            max=65535,
            help="Serve Prometheus metrics on this port; 0 is any free one.",
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(
            envvar="PAGEMILL_METRICS_HOST",
            metavar="ADDRESS",
            help="Where to listen for that; 127.0.0.1 if not given.",
        ),
    ] = None,
) -> None:
    """Answer the queued rows of one model until told to leave.

    The first Ctrl-C or SIGTERM finishes the chunks that are being worked on; the second hands
    them back at once, and what is finished of them is kept.

    \b
    Examples:
      pagemill worker --model smollm2-135m
      pagemill worker --model meta-llama/Llama-3.2-1B-Instruct --max-num-seqs 512
      pagemill worker --model smollm2-135m --log-format json --metrics-port 9400
    """
    # A database that is missing, or a job, is told before a model is loaded.
    with opened(create=True) as deployment:
        if exit_when_done is not None:
            exit_when_done = deployment.store.job(exit_when_done).id
    given = {
        "--concurrency": concurrency,
        "--exit-when-done": exit_when_done,
        "--log-format": log_format,
        "--log-level": log_level,
        "--metrics-port": metrics_port,
        "--metrics-host": metrics_host,
    }
    more = [
        word for name, value in given.items() if value is not None for word in (name, str(value))
    ]
    command = worker_command(model_name(model), *more, *engine.arguments())
    sys.stdout.flush()
    os.execv(command[0], command)
