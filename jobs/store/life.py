"""What people, deadlines and retention do to a job, as a part of `Store`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from jobs.database import Database
from jobs.records import Counts, JobRecord, Plan
from jobs.store import control, deletions, events
from jobs.store.rows import ZERO


class JobLife:
    """The methods of `Store` that cancel, pause, delete and retry jobs."""

    _database: Database

    def request_cancel(self, job_id: str, reason: str = "cancelled") -> JobRecord:
        """Stop a job: queued chunks at once, running ones when their workers hear of it.

        Asking again changes nothing. Without a running chunk the job is finalizing at once.

        Raises:
            StateConflict: the job is finalizing, or has ended in another way.
        """
        return self._database.transact(lambda c: control.request_cancel(c, job_id, reason))

    def pause(self, job_id: str) -> JobRecord:
        """Let no chunk of a job be begun until it is resumed; workers hand running ones back.

        Its deadline goes on. Asking again changes nothing.

        Raises:
            StateConflict: the job is neither queued nor in progress.
        """
        return self._database.transact(lambda c: control.pause(c, job_id))

    def resume(self, job_id: str) -> JobRecord:
        """Let a paused job go on; nothing changes if it is not paused.

        Raises:
            StateConflict: the job is neither queued nor in progress.
        """
        return self._database.transact(lambda c: control.resume(c, job_id))

    def delete_job(self, job_id: str, detail: str | None = None, ended_for: float = 0) -> bool:
        """Forget a job that has ended, but for its events; `deletions` tells what files have to go.

        Args:
            detail: why, for the events.
            ended_for: only if it ended at least so many seconds ago; False if it did not.

        Raises:
            StateConflict: the job has not ended.
        """
        attempt = itertools.count()
        return self._database.transact(
            lambda c: deletions.delete_job(c, job_id, detail, ended_for, next(attempt) > 0)
        )

    def was_deleted(self, job_id: str) -> bool:
        """Whether there was a job of that id that is deleted."""
        with self._database.read() as connection:
            return deletions.was_deleted(connection, job_id)

    def jobs_that_ended(self, seconds: float) -> list[JobRecord]:
        """Jobs that ended at least so many seconds ago, by the database's clock; oldest first."""
        with self._database.read() as connection:
            return deletions.jobs_that_ended(connection, seconds)

    def known_folders(self, names: Sequence[str]) -> set[str]:
        """Those of some folders that belong to a job, or to one that is being deleted."""
        with self._database.read() as connection:
            return deletions.known_folders(connection, names)

    def prune_events(self) -> int:
        """Forget events of jobs that are gone for 90 days; returns how many."""
        return self._database.transact(events.prune)

    def deletions(self) -> list[tuple[str, str]]:
        """(job id, folder) of deleted jobs whose files may still be there."""
        with self._database.read() as connection:
            return deletions.unfinished(connection)

    def forget_deletion(self, job_id: str) -> None:
        """The files of a deleted job are removed."""
        self._database.transact(lambda c: deletions.forget(c, job_id))

    def reopen(self, job_id: str, plan: Plan, retried: Counts = ZERO) -> JobRecord:
        """Open a job that has ended again, for its next version.

        `total_rows` stays, `plan.rejected` is not counted (refused rows are failed already),
        and the deadline is lifted.

        Args:
            retried: counts of the rows in the plan's chunks; they leave the job's counts.

        Raises:
            StateConflict: the job has not ended, or it failed and published nothing.
            ValueError: the job has fewer such rows.
        """
        attempt = itertools.count()
        return self._database.transact(
            lambda c: control.reopen(c, job_id, plan, retried, next(attempt) > 0)
        )
