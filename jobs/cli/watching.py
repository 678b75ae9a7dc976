"""Following a job until it has ended."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from jobs.cli.deployment import Deployment, tell_of_wait
from jobs.cli.progress import Display
from jobs.errors import DatabaseUnavailable
from jobs.states import JobState

if TYPE_CHECKING:
    from jobs.records import JobProgress

POLL_SECONDS = 0.25
SETTLE_SECONDS = 2.0
AWAY_SECONDS = 120.0  # that a database may be away


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
