"""`pagemill estimate`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli.console import console, note, say
from jobs.cli.deployment import opened
from jobs.cli.options import EngineOptions, Json, SubmitOptions, with_groups
from jobs.cli.submitting import read_submission
from jobs.errors import DatabaseError

if TYPE_CHECKING:
    from jobs.kinds import JobKind
    from jobs.settings import Settings
    from jobs.speeds import MeasuredSpeed
    from jobs.submission import Progress as ReadSoFar

    Reading = Callable[[ReadSoFar], None]
    Counting = Callable[[int, int], None]


@with_groups
def estimate(
    options: SubmitOptions,
    engine: EngineOptions,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokenize only so many rows, and reckon from these."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell how much a file would be: rows, tokens, memory, time. Nothing is submitted.

    It takes the options of `run`. All rows are tokenized, as a worker would, unless `--sample` is
    given; the model has to be on this machine.

    \b
    Examples:
      pagemill estimate prompts.jsonl --model smollm2-135m --max-tokens 64
      pagemill estimate big.parquet --model ./llama --sample 10000 --json
    """
    from jobs import estimates
    from jobs.settings import Settings

    settings = Settings.from_env()
    submission = read_submission(options, lambda: datetime.now(UTC))
    arguments = ["--model", submission.model, *engine.arguments()]
    with _bars() as (reading, counting):
        found = estimates.estimate(
            submission,
            arguments,
            max_unpacked=settings.max_unpacked_bytes,
            sample=sample,
            reading=reading,
            counting=counting,
        )
    speed = _measured(settings, submission.model, submission.kind)
    computed = found["prompt_tokens"]["total"] - found["shared_tokens"]
    seconds = None if speed is None else speed.time_for(computed, found["completion_tokens"])
    if as_json:
        print(json.dumps({**found, "speed": _speed_json(speed), "seconds_at_most": seconds}))
        return
    from jobs.cli.estimate_text import report

    trial = f"pagemill run {shlex.quote(options.file)} --model {shlex.quote(options.model)}"
    for line in report(found, speed, seconds, f"{trial} --limit 32"):
        say(line)


def _measured(settings: Settings, model: str, kind: JobKind) -> MeasuredSpeed | None:
    """The last speed of the model that the database knows; without a database there is none."""
    from jobs.database_url import parse_url
    from jobs.speeds import last_measured

    database = parse_url(settings.database_url).database
    if settings.default_database and not Path(database or "").exists():  # nothing ever ran here
        return None
    try:
        with opened(settings=settings) as deployment:
            return last_measured(deployment.store, model, kind)
    except DatabaseError as error:
        note(f"It is not known how fast the model was measured: {error}")
        return None


def _speed_json(speed: MeasuredSpeed | None) -> dict[str, Any] | None:
    if speed is None:
        return None
    return {**dataclasses.asdict(speed), "at": speed.at.isoformat()}


@contextlib.contextmanager
def _bars() -> Iterator[tuple[Reading | None, Counting | None]]:
    """A progress bar for the reading, and then one for the tokenizing; none where nobody looks."""
    if not sys.stderr.isatty():
        yield None, None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(), console=console(sys.stderr), transient=True,
    ) as bar:  # fmt: skip
        first = bar.add_task("reading", total=None, rows=0)
        second = bar.add_task("tokenizing", total=None, rows=0, visible=False, start=False)

        def read(seen: ReadSoFar) -> None:
            bar.update(first, completed=seen.bytes_read, total=seen.total_bytes, rows=seen.rows)

        def count(done: int, total: int) -> None:
            if not done:
                bar.update(first, visible=False)
                bar.start_task(second)
            bar.update(second, completed=done, total=total, rows=done, visible=True)

        yield read, count
