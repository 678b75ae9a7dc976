"""The live panel of `status --watch`: a job, its pace, and the workers of its model."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobs.cli.console import (
    console,
    duration,
    one_line,
    packed,
    plural,
    squeezable,
)
from jobs.cli.deployment import Deployment
from jobs.cli.device_use import device_sentence
from jobs.cli.progress import Display, Pace, Speed, progress_display
from jobs.cli.shapes import cached_share, free_slot, shown_state, unanswered
from jobs.cli.workers import PANEL_COLUMNS, workers_table
from jobs.errors import DatabaseUnavailable
from jobs.states import JobState

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from jobs.records import JobProgress, WorkerRecord

WORKERS_SECONDS = 1.0  # between two looks at them, who report every second at most
_MOST_WORKERS = 10
_BAR_WIDTH = 20


@contextlib.contextmanager
def panel_display(deployment: Deployment) -> Iterator[Display]:
    """A panel on stderr that is drawn anew; where there is no such terminal, lines.

    At the end it is taken away, as what is printed then says more. Whoever leaves before, by
    Ctrl-C or by an error, keeps the last of it.
    """
    shown = console(sys.stderr)
    if not shown.is_terminal or shown.is_dumb_terminal:
        with progress_display() as display:
            yield display
        return
    from rich.live import Live

    speed, pace = Speed(), Pace()
    workers = _looking_at_workers(deployment)
    with Live(console=shown, auto_refresh=False, transient=True) as live:

        def show(progress: JobProgress) -> None:
            pace_now = speed.of(progress), pace.left(progress)
            drawn = panel(progress, *pace_now, workers(progress), shown.width)
            live.update(drawn, refresh=True)

        try:
            yield show
        except BaseException:
            live.transient = False
            raise


def panel(
    progress: JobProgress,
    speed: float | None,
    left: timedelta | None,
    workers: Sequence[WorkerRecord],
    width: int,
) -> RenderableType:
    """What is drawn: lines that fit, since one that were wrapped would not be drawn over.

    Args:
        speed: completion tokens a second.
        left: until all rows are answered.
        workers: those of the job's model that are alive.
        width: of the terminal.
    """
    from rich.console import Group

    job = progress.job
    name = [one_line(job.name)] if job.name else []
    awaited = job.waiting_for or free_slot(progress)
    waits = [f"waits for {one_line(awaited)}"] if awaited else []
    lines = [
        *packed(_pace(progress, speed, left), width),
        f"chunks: {progress.chunks_done:,} of {job.chunks_total:,} done, "
        f"{progress.chunks_running:,} running",
        *filter(None, [device_sentence(progress.counts, progress.device)]),
        *waits,
    ]
    return Group(
        *map(squeezable, packed([job.id, *name, shown_state(job), job.model], width)),
        _rows(progress),
        *map(squeezable, lines),
        *_workers(workers, progress.now, width),
    )


def _rows(progress: JobProgress) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    total, counts = progress.job.total_rows, progress.counts
    done = counts.rows / total if total else 1.0
    rows = f"{done:.0%}  {counts.completed:,} of {plural(total, 'row')} answered"
    if without := unanswered(counts):
        rows += f", {plural(without, 'error')}"
    grid = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(total=max(1, total), completed=counts.rows, width=_BAR_WIDTH)
    grid.add_row(bar, squeezable(rows))
    return grid


def _pace(progress: JobProgress, speed: float | None, left: timedelta | None) -> list[str]:
    job, counts = progress.job, progress.counts
    parts = []
    if speed is not None and job.state is not JobState.QUEUED:
        parts.append(f"{speed:,.0f} tokens/s")
    if counts.prompt_tokens:
        parts.append(f"prefix cache {cached_share(counts):.0%}")
    if job.started_at is not None:
        parts.append(f"for {duration((progress.now - job.started_at).total_seconds())}")
    if left is not None:
        parts.append(f"about {duration(left.total_seconds())} left")
    if job.deadline_at is not None:
        until = (job.deadline_at - progress.now).total_seconds()
        parts.append(f"deadline in {duration(until)}" if until > 0 else "the deadline has passed")
    return parts or ["not begun"]


def _workers(
    workers: Sequence[WorkerRecord], now: datetime, width: int
) -> Iterator[RenderableType]:
    if not workers:
        yield squeezable("no worker of this model is alive")
        return
    shown = workers[:_MOST_WORKERS]
    yield workers_table(shown, now, width, PANEL_COLUMNS)
    for worker in shown:
        if worker.status.message:
            yield squeezable(f"{worker.id}: {one_line(worker.status.message)}")
    if len(workers) > _MOST_WORKERS:
        more = plural(len(workers) - _MOST_WORKERS, "more worker")
        yield squeezable(f"and {more} (`pagemill workers`)")


def _looking_at_workers(
    deployment: Deployment,
) -> Callable[[JobProgress], Sequence[WorkerRecord]]:
    """The living workers of a job's model, as of a moment ago."""
    next_at = 0.0
    found: list[WorkerRecord] = []

    def look(progress: JobProgress) -> Sequence[WorkerRecord]:
        nonlocal next_at, found
        if time.monotonic() >= next_at:
            with contextlib.suppress(DatabaseUnavailable):  # which the next look meets as well
                alive = deployment.store.workers()
                found = [worker for worker in alive if worker.model == progress.job.model]
            next_at = time.monotonic() + WORKERS_SECONDS
        return found

    return look
