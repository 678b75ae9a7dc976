"""The state of all jobs in SQL: every statement of the product is in this package.

`Store` is its only door. A method is one short transaction (of the sweeper's, one for each job
that is dealt with), so that no thread holds a connection while it waits for anything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import select

from jobs.actor import this_actor
from jobs.database import Database
from jobs.records import (
    ChunkLease,
    ChunkRecord,
    Counts,
    ErrorTally,
    EventRecord,
    JobProgress,
    JobRecord,
    MergeLease,
    NewJob,
    WakeUp,
    WindowRecord,
)
from jobs.sqltypes import database_now
from jobs.states import JobState
from jobs.store import events, failures, finalize, health, read, submit, sweep, workers
from jobs.store.evaluating import Evaluating
from jobs.store.life import JobLife
from jobs.store.outbox import Outbox
from jobs.store.scheduling import Scheduling
from jobs.store.work import Work

__all__ = ["Store"]


class Store(Work, JobLife, Evaluating, Outbox, Scheduling):
    """Jobs, workers, schedules and evaluations of one database. Threads may share it.

    Every method raises `DatabaseError` if the database cannot be reached or stays locked, and
    `JobNotFound` if it is given the id of a job that does not exist.

    Args:
        lease_seconds: how long a lease lasts unless it is renewed, by the database's clock.
        actor: who acts, for the events; `user@host` if it is not given.
    """

    def __init__(
        self, database: Database, *, lease_seconds: float = 60, actor: str | None = None
    ) -> None:
        self._database = database.acting_as(actor or this_actor())
        self._lease_seconds = lease_seconds

    def acting_as(self, actor: str) -> Store:
        """The same store, in the name of a worker or a beat."""
        return Store(self._database, lease_seconds=self._lease_seconds, actor=actor)

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts unless it is renewed."""
        return self._lease_seconds

    # ---- submit

    def insert_job(self, job: NewJob) -> JobRecord:
        """Insert a job, its windows and its chunks; the rows refused at submit count as failed.

        Where there is a job of the same idempotency key and fingerprint, nothing is inserted, and
        that job is returned: its id is another one.

        Raises:
            StateConflict: there is a job of that id.
            KeyReused: the job of that idempotency key has another fingerprint.
        """
        attempt = itertools.count()
        return self._database.transact(lambda c: submit.insert_job(c, job, next(attempt) > 0))

    def was_inserted(self, job: NewJob) -> bool:
        """Whether there is such a job, by its id.

        Unlike `job`, this waits for an insert of it whose commit was sent and not answered.
        """
        return self._database.transact(lambda c: submit.was_inserted(c, job))

    # ---- read

    def now(self) -> datetime:
        """The database's clock, by which all times in it are set."""
        with self._database.read() as connection:
            return connection.execute(select(database_now())).scalar_one()

    def check(self) -> str:
        """See that the database can be read and written, at the first try; says what it is.

        Raises:
            DatabaseError: it cannot.
        """
        with self._database.begin() as connection:
            health.try_to_write(connection)
            return health.server(connection)

    def job(self, job_id: str) -> JobRecord:
        """The job of that id, or of the only id that starts so (8 characters at least).

        Raises:
            JobNotFound: there is none, or several; then the message lists them.
        """
        with self._database.read() as connection:
            return read.job(connection, job_id)

    def list_jobs(
        self,
        states: Collection[JobState] = (),
        limit: int = 50,
        *,
        model: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
    ) -> list[JobRecord]:
        """Jobs in one of the states (in any, if none is given), newest first.

        Args:
            name: text that is in the job's name, whatever the case of its letters.
            since: when they were submitted at the earliest.
        """
        with self._database.read() as connection:
            return read.list_jobs(connection, states, limit, model, name, since)

    def served_models(self) -> set[str]:
        """Models that workers have loaded."""
        with self._database.read() as connection:
            return read.served_models(connection)

    def progress(self, job_id: str) -> JobProgress:
        """The job, with the last counts of its chunks that were begun and are not committed."""
        with self._database.read() as connection:
            return read.progress(connection, job_id, self._lease_seconds)

    def events(self, job_id: str) -> list[EventRecord]:
        """What was done to a job, the oldest first; also if it is gone, by its whole id."""
        with self._database.read() as connection:
            return events.of_job(connection, job_id)

    def chunks(self, job_id: str, version: int | None = None) -> list[ChunkRecord]:
        """The chunks of a version (None: the job's latest), by ordinal."""
        with self._database.read() as connection:
            return read.chunk_records(connection, job_id, version)

    def chunks_of(self, job_id: str, version: int, ordinals: Collection[int]) -> list[ChunkRecord]:
        """Those of a version that have these numbers, by ordinal; its id is given whole."""
        with self._database.read() as connection:
            return read.chunks_of(connection, job_id, version, ordinals)

    def windows(self, job_id: str, version: int | None = None) -> list[WindowRecord]:
        """The windows of a version (None: the job's latest), by ordinal."""
        with self._database.read() as connection:
            return read.window_records(connection, job_id, version)

    # ---- sweeper

    def prune_workers(self) -> int:
        """Forget workers that were not seen for a week; returns how many."""
        return self._database.transact(workers.prune_workers)

    def requeue_expired(self) -> int:
        """Take chunks from workers that let their leases run out; how many there were."""
        return sweep.requeue_expired(self._database)

    def requeue_owned(self, owner_prefix: str) -> int:
        """Hand back the running chunks of a worker that is known to be dead; returns how many.

        Nobody needs to wait then until its leases run out. If it was not dead after all, it is
        fenced.

        Args:
            owner_prefix: how the worker's id begins, such as `host:pid:`.
        """
        return sweep.requeue_owned(self._database, owner_prefix)

    def chunks_to_wake(
        self,
        limit: int = 100,
        resend_seconds: float = 60,
        model: str | None = None,
        lost: bool = False,
    ) -> list[WakeUp]:
        """Queued chunks whose wake-up has to be sent now.

        A chunk is named at once when it is queued, and again `resend_seconds` times 2, 4, …, 64
        after each message, for as long as nobody claims it.

        Args:
            lost: the messages sent so far are known to be lost: name chunks whatever was sent.
        """
        return self._database.transact(
            lambda c: sweep.chunks_to_wake(c, limit, resend_seconds, model, lost)
        )

    def expire_overdue(self) -> int:
        """Stop jobs whose deadline has passed; how many there were."""
        return sweep.expire_overdue(self._database)

    def jobs_to_finalize(self) -> list[str]:
        """Finalizing jobs whose windows are all merged, and that nobody finalizes.

        Jobs that have no chunk left, but did not get there, are moved on first.
        """
        return sweep.jobs_to_finalize(self._database)

    def windows_to_merge(self) -> list[tuple[str, int]]:
        """(job id, window) of windows that have no chunk left, and that nobody merges."""
        with self._database.read() as connection:
            return sweep.windows_to_merge(connection)

    # ---- finalize

    def claim_window(self, job_id: str, window: int, owner: str) -> MergeLease | None:
        """Lease a window for merging; None if it is not ready, merged, or leased."""
        return self._database.transact(
            lambda c: finalize.claim_window(c, job_id, window, owner, self._lease_seconds)
        )

    def finish_window(self, lease: MergeLease, merged: str) -> bool:
        """Make a file the outcome of its window; False if the lease was lost before."""
        return self._database.transact(lambda c: finalize.finish_window(c, lease, merged))

    def claim_finalization(self, job_id: str, owner: str) -> MergeLease | None:
        """Lease a finalizing job whose windows are all merged; None if it is not that."""
        return self._database.transact(
            lambda c: finalize.claim_finalization(c, job_id, owner, self._lease_seconds)
        )

    def renew_merge(self, lease: MergeLease) -> bool:
        """Prolong the lease of a window or a finalization; False if it was lost before."""
        return self._database.transact(
            lambda c: finalize.renew_merge(c, lease, self._lease_seconds)
        )

    def finish_job(
        self, lease: MergeLease, counts: Counts, errors: Sequence[ErrorTally] = ()
    ) -> bool:
        """Publish the version: the job is completed, cancelled or expired, by `stop_reason`.

        Args:
            counts: of all published rows; they replace those of the job.
            errors: of the failed rows that no commit told of, by code: those that were in the
                spools of chunks that were stopped.

        Returns:
            False if the lease was lost before.
        """
        return self._database.transact(lambda c: finalize.finish_job(c, lease, counts, errors))

    def fail_job(
        self,
        job_id: str,
        code: str,
        message: str,
        lease: MergeLease | ChunkLease | None = None,
    ) -> bool:
        """End a job that cannot be done; its open chunks are stopped, running ones too.

        Args:
            lease: of a chunk, of a window, or of the finalization, under which it was found out;
                without one, a job that is finalizing cannot be failed.

        Returns:
            False if the job has ended, the lease was lost, or it is finalizing under another one.
        """
        attempt = itertools.count()
        return self._database.transact(
            lambda c: finalize.fail_job(c, job_id, code, message, lease, next(attempt) > 0)
        )

    def count_failure(self, lease: MergeLease | ChunkLease, error: str) -> int:
        """Write down that the work under a lease failed in a way that nobody foresaw.

        Returns:
            How often this step of the job's version has failed so by now, whoever tried it; 0 if
            the job is gone.
        """
        return self._database.transact(lambda c: failures.count_failure(c, lease, error))

    def let_go(self, lease: MergeLease) -> None:
        """Say that a merge or a finalization was tried in vain.

        The lease runs on, so that nobody tries again at once. A try of which nothing is said until
        its lease has run out is counted as one that never ended: `MergeLease.never_ended`.
        """
        self._database.transact(lambda c: finalize.let_go(c, lease))

    def garbage(self) -> list[tuple[str, int]]:
        """(job id, version): for each job the first version that ended with garbage still there."""
        with self._database.read() as connection:
            return finalize.garbage(connection)

    def forget_garbage(self, job_id: str, version: int) -> None:
        """The garbage of a version is removed; `garbage` names the next one, if that has ended."""
        self._database.transact(lambda c: finalize.forget_garbage(c, job_id, version))
