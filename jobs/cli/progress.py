"""How far a job is, and how fast: a bar, or a line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobs.cli.console import console, duration, note, one_line, plural
from jobs.cli.shapes import cached_share, shown_state, unanswered
from jobs.states import HAS_WORK, JobState

if TYPE_CHECKING:
    from jobs.records import JobProgress

LINE_SECONDS = 5.0  # between progress lines where there is no terminal
_RATE_WINDOW = 10.0
_PACE_SECONDS = 60.0  # that the time left is reckoned from
# The first rows come late and then many at once, as they are computed side by side: they tell
# nothing of the rest. So a tenth of the rows comes before the time left, within these bounds.
_TELLING_SHARE = 0.1
_TELLING_ROWS = (3, 1000)

_BAR_WIDTH = 10
_BESIDE_LINE = _BAR_WIDTH + len(" ") + len(" 0:00:00")  # the bar, and the time so far

Display = Callable[["JobProgress"], None]


class Speed:
    """Completion tokens a second, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[datetime, int]] = deque()

    def of(self, progress: JobProgress) -> float | None:
        """The speed now; None until two different moments were seen."""
        self._seen.append((progress.now, progress.counts.completion_tokens))
        while (progress.now - self._seen[0][0]).total_seconds() > _RATE_WINDOW:
            self._seen.popleft()
        first, tokens = self._seen[0]
        seconds = (progress.now - first).total_seconds()
        # Rows that a worker hands back take their tokens with them.
        made = max(0, self._seen[-1][1] - tokens)
        return made / seconds if seconds > 0 else None


class Pace:
    """How long the rest of a job will take, by the rows of the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[datetime, int]] = deque()

    def left(self, progress: JobProgress) -> timedelta | None:
        """None as long as nobody can tell: too little was finished at all or of late, or it is
        paused."""
        rows, now = progress.counts.rows, progress.now
        if progress.job.state is JobState.QUEUED:  # while a worker starts there is no pace
            self._seen.clear()
            return None
        self._seen.append((now, rows))
        while (now - self._seen[0][0]).total_seconds() > _PACE_SECONDS:
            self._seen.popleft()
        first, then = self._seen[0]
        finished, job = rows - then, progress.job
        least, enough = _TELLING_ROWS
        if rows < max(least, min(job.total_rows * _TELLING_SHARE, enough)):
            return None
        if finished <= 0 or now <= first or job.paused_at is not None or job.state not in HAS_WORK:
            return None
        return (now - first) * max(0, job.total_rows - rows) / finished


def progress_line(
    progress: JobProgress,
    speed: float | None,
    left: timedelta | None = None,
    width: int | None = None,
) -> str:
    """`in_progress  12/60 rows answered  2 errors  85 tokens/s  prefix cache 83%  about 34 s left`.

    As long as no worker is ready, it ends with what the start of one is at.

    Args:
        width: where there is no room for all of it, what matters least is left out.
    """
    counts, job = progress.counts, progress.job
    # What matters most has the highest number: how long it takes, and what is wrong.
    parts = [(2, shown_state(job)), (3, f"{counts.completed:,}/{job.total_rows:,} rows answered")]
    if without := unanswered(counts):
        parts.append((4, plural(without, "error")))
    if speed is not None and job.state is JobState.IN_PROGRESS:
        parts.append((1, f"{speed:,.0f} tokens/s"))
    if counts.prompt_tokens:
        parts.append((0, f"prefix cache {cached_share(counts):.0%}"))
    if left is not None:
        parts.append((5, f"about {duration(left.total_seconds())} left"))
    if progress.starting is not None:
        parts.append((6, f"a worker starts: {one_line(progress.starting)}"))
    while width is not None and len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(min(parts))
    return _joined(parts)


def _joined(parts: list[tuple[int, str]]) -> str:
    return "  ".join(text for _, text in parts)


@contextlib.contextmanager
def progress_display() -> Iterator[Display]:
    """A progress bar on stderr; where that is no terminal, a line now and then."""
    if sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> Iterator[Display]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    speed, pace, shown = Speed(), Pace(), console(sys.stderr)
    with Progress(
        BarColumn(_BAR_WIDTH), TextColumn("{task.description}"), TimeElapsedColumn(),
        console=shown,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None)

        def show(progress: JobProgress) -> None:
            bar.update(
                task,
                total=max(1, progress.job.total_rows),
                completed=progress.counts.rows,
                description=progress_line(
                    progress, speed.of(progress), pace.left(progress), shown.width - _BESIDE_LINE
                ),
            )

        yield show


def _lines() -> Display:
    speed, pace = Speed(), Pace()
    said: tuple[object, ...] = ()
    said_at = -LINE_SECONDS

    def show(progress: JobProgress) -> None:
        nonlocal said, said_at
        rate, left = speed.of(progress), pace.left(progress)
        state, now = progress.job.state, time.monotonic()
        news = (state, progress.counts, progress.job.paused_at, progress.starting)
        if news == said or (said[:1] == (state,) and now - said_at < LINE_SECONDS):
            return
        said, said_at = news, now
        note(progress_line(progress, rate, left))

    return show
