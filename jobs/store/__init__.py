"""The state of all jobs in SQL: every statement of the product is in this package.

`Store` is its only door. A method is one short transaction (of the sweeper's, one for each job
that is dealt with), so that no thread holds a connection while it waits for anything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
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
    Renewal,
    WakeUp,
    WindowRecord,
    WorkerRecord,
    WorkerStatus,
)
from jobs.sqltypes import database_now
from jobs.states import JobState
from jobs.store import (
    events,
    finalize,
    leases,
    moves,
    read,
    submit,
    sweep,
    workers,
)
from jobs.store.life import JobLife

__all__ = ["Store"]


class Store(JobLife):
    """Jobs, windows, chunks and workers of one database. Threads may share it.

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

    # ---- read

    def now(self) -> datetime:
        """The database's clock, by which all times in it are set."""
        with self._database.read() as connection:
            return connection.execute(select(database_now())).scalar_one()

    def job(self, job_id: str) -> JobRecord:
        """The job of that id, or of the only id that starts so (8 characters at least).

        Raises:
            JobNotFound: there is none, or several; then the message lists them.
        """
        with self._database.read() as connection:
            return read.job(connection, job_id)

    def list_jobs(self, states: Collection[JobState] = (), limit: int = 50) -> list[JobRecord]:
        """Jobs in one of the states (in any, if none is given), newest first."""
        with self._database.read() as connection:
            return read.list_jobs(connection, states, limit)

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

    def windows(self, job_id: str, version: int | None = None) -> list[WindowRecord]:
        """The windows of a version (None: the job's latest), by ordinal."""
        with self._database.read() as connection:
            return read.window_records(connection, job_id, version)

    # ---- worker

    def claim_chunk(self, worker_id: str, model: str) -> ChunkLease | None:
        """Lease the best free chunk of a model, or None if there is none.

        The job of the highest priority comes first, then the one with the fewest running chunks,
        then the oldest; in it, the lowest ordinal. Paused jobs are passed over. A queued job is in
        progress from then on.
        """
        return self._database.transact(
            lambda c: leases.claim_chunk(c, worker_id, model, self._lease_seconds)
        )

    def renew(self, worker_id: str, held: Mapping[str, tuple[int, Counts]]) -> Renewal:
        """Prolong the leases of a worker and write down how far its chunks are.

        Args:
            held: for each chunk id its lease's epoch, and its counts so far.
        """
        if not held:
            return Renewal()
        return self._database.transact(
            lambda c: leases.renew(c, worker_id, held, self._lease_seconds)
        )

    def release_chunk(self, lease: ChunkLease, counts: Counts | None = None) -> bool:
        """Hand a chunk back unfinished: to the queue, or to its end if its job stops.

        Args:
            counts: of the rows that are in its spool; None leaves them as they are.

        Returns:
            False if the lease was lost before.
        """
        return self._database.transact(lambda c: leases.release_chunk(c, lease, counts))

    def commit_chunk(
        self,
        lease: ChunkLease,
        part: str,
        counts: Counts,
        errors: Sequence[ErrorTally] = (),
    ) -> bool:
        """Make a part the outcome of its chunk, and add its counts to the job.

        The last chunk moves the job on to finalizing.

        Args:
            part: path of the finished part, relative to the job's folder.
            errors: of the part's failed rows, by code; they go in with the commit or not at all.

        Returns:
            False if the lease was lost before. True also if this very commit was made before.
        """
        return self._database.transact(
            lambda c: leases.commit_chunk(c, lease, part, counts, errors)
        )

    def wait_for(self, job_id: str, what: str) -> None:
        """Write down what a job that has not ended waits for.

        The next chunk or window of it that is done clears it, and so does a change of its state.

        Args:
            what: a sentence; the last one counts.
        """
        self._database.transact(lambda c: moves.wait_for(c, job_id, what))

    def wait_no_more(self, job_id: str, what: str) -> None:
        """A job does not wait for that any more; nothing happens if another sentence is there."""
        self._database.transact(lambda c: moves.wait_no_more(c, job_id, what))

    def models_wanted(self) -> list[str]:
        """The models for which chunks are queued."""
        with self._database.read() as connection:
            return leases.models_wanted(connection)

    def register_worker(
        self,
        worker_id: str,
        model: str,
        concurrency: int,
        software: str,
        status: WorkerStatus,
    ) -> None:
        """Write down a worker that has just started; it may be repeated.

        Args:
            worker_id: `host:pid:random`, which no other worker has.
            concurrency: chunks that it works on at once.
            software: its version of pagemill.

        Raises:
            ValueError: the id is of another shape, or `status.state` is no state of a worker.
        """
        self._database.transact(
            lambda c: workers.register_worker(c, worker_id, model, concurrency, software, status)
        )

    def report_worker(self, worker_id: str, status: WorkerStatus) -> bool:
        """Write down what a worker says of itself, and that it was seen now.

        Returns:
            False if there is no such worker (it was not seen for long, and was pruned).
        """
        return self._database.transact(lambda c: workers.report_worker(c, worker_id, status))

    def workers(self, *, all: bool = False) -> list[WorkerRecord]:
        """The workers that are alive, the oldest first.

        A worker is alive if it was seen within a lease's length, by the database's clock, and has
        not said that it stopped or failed.

        Args:
            all: those that left or were lost in the last days, too.
        """
        with self._database.read() as connection:
            return workers.worker_records(connection, self._lease_seconds, all)

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
        self, job_id: str, code: str, message: str, lease: MergeLease | None = None
    ) -> bool:
        """End a job that cannot be done; its open chunks are stopped, running ones too.

        Args:
            lease: of a window, or of the finalization; without one, a job that is finalizing
                cannot be failed.

        Returns:
            False if the job has ended, or is finalizing under another lease.
        """
        return self._database.transact(lambda c: finalize.fail_job(c, job_id, code, message, lease))

    def garbage(self) -> list[tuple[str, int]]:
        """(job id, version) of versions that ended and whose garbage may still be there."""
        with self._database.read() as connection:
            return finalize.garbage(connection)

    def forget_garbage(self, job_id: str, version: int) -> None:
        """The garbage of a version is removed."""
        self._database.transact(lambda c: finalize.forget_garbage(c, job_id, version))
