"""A handle of a job."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobs.api.display import watching
from jobs.api.opening import opened
from jobs.api.status import JobStatus, status_of
from jobs.errors import JobNotFound, WaitTimedOut
from jobs.settings import Settings
from jobs.states import JobState

if TYPE_CHECKING:
    from jobs.api.results import Results
    from jobs.cli.deployment import Deployment
    from jobs.records import EventRecord


@dataclass(frozen=True, slots=True)
class RowFailure:
    """A row without an answer.

    Attributes:
        row_index: from 0.
        code: stable name, such as `invalid_json`; docs/output.md lists them.
        line: of the input, from 1; None where the row was refused later.
        field: of the row, that is at fault.
    """

    row_index: int
    custom_id: str | None
    code: str
    message: str
    line: int | None
    field: str | None


class Job:
    """A job, by its id: what it is like is asked anew by every call.

    `submit` gives one, and so does `Job.get` of a job that was submitted elsewhere. It can be
    kept, copied and shared by threads, and closing the notebook does nothing to the job.

    Examples:
        >>> job = Job.get("job_abcdefgh")
        >>> job.wait()
        >>> job.results().pandas()

    Attributes:
        id: the whole id, as the command line has it.
    """

    __slots__ = ("_settings", "id")

    def __init__(self, id: str, settings: Settings | None = None) -> None:
        self.id = id
        self._settings = settings or Settings.from_env()

    @classmethod
    def get(cls, id: str, *, settings: Settings | None = None) -> Job:
        """The job of an id, or of the start of one (8 characters at least).

        Args:
            settings: of the deployment that has it; of the environment if not given.

        Raises:
            JobNotFound: there is no such job, or several.
        """
        with opened(settings) as deployment:
            return cls(deployment.store.job(id).id, deployment.settings)

    @classmethod
    def list(
        cls,
        state: JobState | str | Iterable[JobState | str] | None = None,
        limit: int = 50,
        *,
        model: str | os.PathLike[str] | None = None,
        name: str | None = None,
        since: str | timedelta | datetime | None = None,
        settings: Settings | None = None,
    ) -> Sequence[Job]:
        """Jobs, newest first; see `list_jobs`."""
        from jobs.api.listing import list_jobs

        return list_jobs(state, limit, model=model, name=name, since=since, settings=settings)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.id, self._settings) == (other.id, other._settings)

    def __hash__(self) -> int:
        return hash(self.id)

    # ---- looking

    def status(self) -> JobStatus:
        """Where the job stands now.

        Examples:
            >>> status = job.status()
            >>> status.state, status.rows.completed, status.rows.total
            (<JobState.IN_PROGRESS: 'in_progress'>, 12, 60)
        """
        with opened(self._settings) as deployment:
            return self._status(deployment)

    def wait(self, timeout: float | None = None, progress: bool = True) -> JobStatus:
        """Wait until the job has ended, in whatever way; returns its last status.

        An interrupt ends the waiting, not the job.

        Args:
            timeout: seconds; None waits for as long as it takes.
            progress: show a bar on stderr, in a terminal or a notebook, and log a warning when
                the job has no worker.

        Raises:
            WaitTimedOut: the job has not ended within the timeout; it goes on.
        """
        from jobs.cli.watching import follow
        from jobs.cli.why_it_waits import telling_why_it_waits

        with opened(self._settings) as deployment:
            with watching(progress) as watcher:
                watched, display = replace(deployment, tell=watcher.tell), watcher.show
                if progress:
                    display = telling_why_it_waits(watched, display)
                ended = follow(watched, self.id, display, timeout)
            if ended is None:
                raise WaitTimedOut(
                    f"job {self.id} has not ended within {timeout:g} s; {self._why(deployment)}"
                )
            deployment.tell_urls(ended.job)
            return self._status(deployment)

    def results(self, version: int | None = None, partial: bool = False) -> Results:
        """The answers, in the order of the input.

        Args:
            version: a published version; the newest if not given.
            partial: the rows so far of a job that runs.

        Raises:
            OutputNotReady: nothing is published yet.

        Examples:
            >>> job.results().pandas()
            >>> for row in job.results(partial=True):
            ...     print(row["text"])
        """
        from jobs.api.results import Results
        from jobs.errors import UsageError
        from jobs.results import open_partial, open_version

        if partial and version is not None:
            raise UsageError("partial and version cannot be given together")
        with opened(self._settings) as deployment:
            job = deployment.store.job(self.id)
            if partial:
                rows = open_partial(deployment.store, deployment.storage, job)
            else:
                rows = open_version(deployment.storage, job, version)
            return Results(deployment.settings, rows)

    def errors(self, code: str | Collection[str] | None = None) -> Iterator[RowFailure]:
        """The rows without an answer, in their order; also while the job runs.

        Args:
            code: only rows with this error code, or one of these.
        """
        from jobs.cli.errors import error_rows

        codes = [code] if isinstance(code, str) else code
        with opened(self._settings) as deployment:
            for row in error_rows(deployment, deployment.store.job(self.id)):
                if not codes or row["code"] in codes:
                    yield RowFailure(**row)

    def events(self) -> Sequence[EventRecord]:
        """Who did what to the job, and when; oldest first, also of a deleted job."""
        with opened(self._settings) as deployment:
            return deployment.store.events(self.id)

    # ---- changing

    def cancel(self) -> JobStatus:
        """End the job early; what was answered is published. Asking twice does no harm."""
        with opened(self._settings) as deployment:
            job = deployment.store.request_cancel(self.id, "cancelled")
            if not job.state.terminal:
                deployment.settle(job.id)
            return self._status(deployment)

    def pause(self) -> JobStatus:
        """Begin none of its rows for now. Pausing twice does no harm."""
        with opened(self._settings) as deployment:
            deployment.store.pause(self.id)
            return self._status(deployment)

    def resume(self) -> JobStatus:
        """Let a paused job go on. Resuming one that is not paused does no harm."""
        with opened(self._settings) as deployment:
            job = deployment.store.resume(self.id)
            deployment.wake(job.model, lost=True)
            return self._status(deployment)

    def retry(self) -> JobStatus:
        """Answer the rows again that got no answer, as a new version.

        Raises:
            StateConflict: the job has not ended, or there is nothing to answer again.
        """
        from jobs.retry import plan_retry

        with opened(self._settings) as deployment:
            plan, counts = plan_retry(deployment.store, deployment.storage, self.id)
            job = deployment.store.reopen(self.id, plan, counts)
            deployment.wake(job.model)
            return self._status(deployment)

    def delete(self) -> None:
        """Remove the job with its answers and all other files, for good. Twice does no harm.

        Raises:
            StateConflict: it has not ended; cancel it first.
        """
        from jobs.deletion import delete_jobs, finish_deletions

        with opened(self._settings) as deployment:
            store = deployment.store
            try:
                delete_jobs(store, deployment.storage, store.job(self.id).id)
            except JobNotFound:
                if not store.was_deleted(self.id):
                    raise
                finish_deletions(store, deployment.storage)

    def _status(self, deployment: Deployment) -> JobStatus:
        return status_of(deployment.store.progress(self.id), deployment.storage)

    def _why(self, deployment: Deployment) -> str:
        from jobs.cli.why_it_waits import why_it_waits

        progress = deployment.store.progress(self.id)
        return why_it_waits(deployment, progress) or "it goes on"
