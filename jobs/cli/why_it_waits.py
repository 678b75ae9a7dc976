"""Why a job does not go on, and telling it while the job is watched."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from jobs.cli.console import one_line
from jobs.cli.deployment import Deployment
from jobs.cli.progress import Display
from jobs.cli.shapes import free_slot, how_the_last_ended
from jobs.cli.worker import worker_hint
from jobs.errors import DatabaseUnavailable
from jobs.states import HAS_WORK

if TYPE_CHECKING:
    from jobs.records import JobProgress, JobRecord

PATIENCE_SECONDS = 5.0  # until a job without a worker is told: one may just be starting


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
