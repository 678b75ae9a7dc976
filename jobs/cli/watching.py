"""Following a job until it has ended."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobs.cli.console import console, duration, note, one_line, plural
from jobs.cli.deployment import Deployment, tell_of_wait
from jobs.cli.shapes import cached_share, free_slot, how_the_last_ended, shown_state, unanswered
from jobs.cli.worker import worker_hint
from jobs.errors import DatabaseUnavailable
from jobs.states import HAS_WORK, JobState

if TYPE_CHECKING:
    from jobs.records import JobProgress, JobRecord

POLL_SECONDS = 0.25
SETTLE_SECONDS = 2.0
AWAY_SECONDS = 120.0  # that a database may be away
LINE_SECONDS = 5.0  # between progress lines where there is no terminal
PATIENCE_SECONDS = 5.0  # until a job without a worker is told: one may just be starting
_RATE_WINDOW = 10.0
_PACE_SECONDS = 60.0  # that the time left is reckoned from
# The first rows come late and then many at once, as they are computed side by side: they tell
# nothing of the rest. So a tenth of the rows comes before the time left, within these bounds.
_TELLING_SHARE = 0.1
_TELLING_ROWS = (3, 1000)

_BAR_WIDTH = 10
_BESIDE_LINE = _BAR_WIDTH + len(" ") + len(" 0:00:00")  # the bar, and the time so far

Display = Callable[["JobProgress"], None]


def follow(
    deployment: Deployment, job_id: str, display: Display, timeout: float | None = None
) -> JobProgress | None:
    """Poll a job until it has ended; None if the time ran out before.

    A job that only has to be brought to its end (cancelled, overdue, complete) is, even if no
    worker lives.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    settle_at = 0.0
    watched = Watched(deployment, job_id)
    while True:
        progress = watched.progress()
        if progress is not None:
            display(progress)
            if progress.job.state.terminal:
                return progress
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            return None
        if progress is not None and _wants_settling(progress) and now >= settle_at:
            with contextlib.suppress(DatabaseUnavailable):  # which the next look meets as well
                deployment.settle(progress.job.id)
            settle_at = time.monotonic() + SETTLE_SECONDS
            continue
        time.sleep(POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - now))


class Watched:
    """A job that is looked at again and again; a database that is away is waited for."""

    def __init__(self, deployment: Deployment, job_id: str) -> None:
        self._deployment = deployment
        self._job_id = job_id
        self._away_since: float | None = None

    def progress(self) -> JobProgress | None:
        """How far the job is; None if the database is away just now.

        Raises:
            DatabaseError: it has been away for too long, or would not be back by waiting.
        """
        try:
            progress = self._deployment.store.progress(self._job_id)
        except DatabaseUnavailable as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                tell_of_wait(error, self._deployment.tell)
            elif now - self._away_since > AWAY_SECONDS:
                raise
            return None
        self._away_since = None
        return progress


def _wants_settling(progress: JobProgress) -> bool:
    job = progress.job
    overdue = job.deadline_at is not None and job.deadline_at <= progress.now
    return job.state in (JobState.CANCELLING, JobState.FINALIZING) or overdue


def no_worker(deployment: Deployment, progress: JobProgress) -> str | None:
    """A sentence, if a job has work that no living worker will do; None if that is not so.

    Raises:
        DatabaseError: it cannot be reached.
    """
    job = progress.job
    if progress.workers_alive or job.state not in HAS_WORK or job.paused_at is not None:
        return None
    others = sorted({worker.model for worker in deployment.store.workers()})
    served = f" (there are workers of {', '.join(others)})" if others else ""
    last = one_line(how_the_last_ended(progress))
    return f"no worker of {job.model} is alive{served}{last}; start one with `{worker_hint(job)}`"


def is_paused(job: JobRecord) -> str | None:
    """A sentence, if nothing of a job is begun because it is paused."""
    if job.paused_at is None:
        return None
    since = job.paused_at.astimezone().isoformat(" ", "seconds")
    return f"job {job.id} is paused since {since}; `pagemill resume {job.id}` lets it go on"


def why_it_waits(deployment: Deployment, progress: JobProgress) -> str | None:
    """A sentence, if a job does not go on for want of a worker, or because it is paused.

    Raises:
        DatabaseError: it cannot be reached.
    """
    return is_paused(progress.job) or no_worker(deployment, progress) or no_slot(progress)


def no_slot(progress: JobProgress) -> str | None:
    """A sentence, if all workers of a job are busy with others."""
    slot = free_slot(progress)
    return None if slot is None else f"job {progress.job.id} waits for {slot}"


def telling_why_it_waits(deployment: Deployment, display: Display) -> Display:
    """The display, and a sentence each time that the job has had no worker for a while.

    A job that is paused, or waits for something else, is told of too.
    """
    without_since: float | None = None
    told = told_pause = False
    waited_for: str | None = None
    display = telling_of_slot(deployment, display)

    def show(progress: JobProgress) -> None:
        nonlocal without_since, told, told_pause, waited_for
        if (sentence := is_paused(progress.job)) and not told_pause:
            deployment.tell(sentence)
        told_pause = sentence is not None
        if progress.job.waiting_for != waited_for:
            waited_for = progress.job.waiting_for
            deployment.tell(f"The job waits for {waited_for}" if waited_for else "The job goes on")
        if progress.workers_alive:
            without_since, told = None, False
        elif without_since is None:
            without_since = time.monotonic()
        elif not told and time.monotonic() - without_since >= PATIENCE_SECONDS:
            with contextlib.suppress(DatabaseUnavailable):  # which the next look meets as well
                sentence = no_worker(deployment, progress)
                told = True
                if sentence:
                    deployment.tell(sentence)
        display(progress)

    return show


def telling_of_slot(deployment: Deployment, display: Display) -> Display:
    """The display, and what keeps the workers busy, if a job has waited for them for a while."""
    since: float | None = None
    said: str | None = None

    def show(progress: JobProgress) -> None:
        nonlocal since, said
        sentence = no_slot(progress)
        if sentence is None:
            since = None
        else:
            now = time.monotonic()
            since = now if since is None else since
            if sentence != said and now - since >= PATIENCE_SECONDS:
                deployment.tell(sentence)
                said = sentence
        display(progress)

    return show


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
