"""`pagemill beat`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.console import note, say
from jobs.cli.deployment import opened
from jobs.cli.log_options import LogFormat, LogLevel
from jobs.errors import UsageError


def beat(
    health_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Touch this file after each round that went well."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only tell by the health file whether a beat is well."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="PAGEMILL_LOG_FORMAT", help="Lines for people, or JSON.")
    ] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="PAGEMILL_LOG_LEVEL", help="How much is logged.")
    ] = LogLevel.INFO,
) -> None:
    """Look after jobs and schedules, with or without workers.

    It goes on until it is told to leave.

    What was lost is queued again, overdue jobs expire, jobs whose rows are all in are finished,
    evaluations are driven and URLs are told of what ended, every PAGEMILL_SWEEP_SECONDS; what a
    schedule has due is begun on time. Workers do the same; a beat does it while none lives. There
    may be several. It loads no model; SIGTERM and Ctrl-C end it at once.

    \b
    Examples:
      pagemill beat
      pagemill beat --health-file /tmp/beat
      pagemill beat --health-file /tmp/beat --check
    """
    if check:
        _check(health_file)
        return
    from jobs.logs import configure_logging

    configure_logging("beat", as_json=log_format is LogFormat.JSON, level=log_level)
    _run(health_file, log_level.value, log_format.value)


def _check(path: Path | None) -> None:
    from jobs.beat import HealthFile
    from jobs.settings import Settings

    if path is None:
        raise UsageError("--check looks at a file; name it with --health-file")
    health = HealthFile(path, Settings.from_env().sweep_seconds)
    age = health.age()
    if age is None:
        note(f"no round of a beat has gone well yet: there is no {path}")
        raise typer.Exit(1)
    if age > health.most_seconds:
        note(f"the last round that went well was {age:.0f} s ago ({health.most_seconds:g} allowed)")
        raise typer.Exit(1)
    say(f"the last round went well {age:.0f} s ago")


def _run(path: Path | None, log_level: str, log_format: str) -> None:
    from jobs.beat import Beat, HealthFile
    from jobs.leaving import Leaving, hang_up

    leaving = Leaving()
    leaving.on(signal.SIGTERM, signal.SIGINT, *hang_up())
    try:
        with opened(create=True) as deployment:
            settings = deployment.settings
            health = None if path is None else HealthFile(path, settings.sweep_seconds)
            Beat(
                settings, deployment.store, deployment.storage, leaving, health,
                log_level=log_level, log_format=log_format,
            ).run()  # fmt: skip
    finally:
        leaving.check()  # a second signal breaks whatever the first one left
