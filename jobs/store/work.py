"""What workers do to jobs, and tell of themselves, as a part of `Store`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jobs.database import Database
from jobs.records import (
    ChunkLease,
    Counts,
    DeviceTime,
    ErrorTally,
    Renewal,
    WorkerRecord,
    WorkerStatus,
)
from jobs.store import clock, leases, moves, workers


class Work:
    """The methods of `Store` that lease chunks, end leases, and keep the table of workers."""

    _database: Database
    _lease_seconds: float

    def claim_chunk(self, worker_id: str, model: str) -> ChunkLease | None:
        """Lease the best free chunk of a model, or None if there is none.

        The job of the highest priority comes first, then the one with the fewest running chunks,
        then the oldest; in it, the lowest ordinal. Paused jobs are passed over. A queued job is in
        progress from then on.
        """
        return self._database.transact(
            lambda c: leases.claim_chunk(c, worker_id, model, self._lease_seconds)
        )

    def renew(
        self,
        worker_id: str,
        held: Mapping[str, tuple[int, Counts]],
        device: Mapping[str, DeviceTime] = MappingProxyType({}),
    ) -> Renewal:
        """Prolong the leases of a worker and write down how far its chunks are.

        Args:
            held: for each chunk id its lease's epoch, and its counts so far.
            device: for chunk ids the time that devices computed them, under earlier leases too.
        """
        if not held:
            return Renewal()
        return self._database.transact(
            lambda c: leases.renew(c, worker_id, held, self._lease_seconds, device)
        )

    def cut_times(self) -> int:
        """Cut leases and waits that a clock which was put back left far ahead; how many."""
        with self._database.read() as connection:  # most often, without a write
            if not clock.are_too_far(connection, self._lease_seconds):
                return 0
        return self._database.transact(lambda c: clock.cut_times(c, self._lease_seconds))

    def release_chunk(
        self,
        lease: ChunkLease,
        counts: Counts | None = None,
        device: DeviceTime | None = None,
    ) -> bool:
        """Hand a chunk back unfinished: to the queue, or to its end if its job stops.

        Args:
            counts: of the rows that are in its spool; None leaves them as they are.
            device: time that devices computed it, under earlier leases too; None leaves that.

        Returns:
            False if the lease was lost before.
        """
        return self._database.transact(lambda c: leases.release_chunk(c, lease, counts, device))

    def commit_chunk(
        self,
        lease: ChunkLease,
        part: str,
        counts: Counts,
        errors: Sequence[ErrorTally] = (),
        device: DeviceTime | None = None,
    ) -> bool:
        """Make a part the outcome of its chunk, and add its counts to the job.

        The last chunk moves the job on to finalizing.

        Args:
            part: path of the finished part, relative to the job's folder.
            errors: of the part's failed rows, by code; they go in with the commit or not at all.
            device: as of `release_chunk`.

        Returns:
            False if the lease was lost before. True also if this very commit was made before.
        """
        return self._database.transact(
            lambda c: leases.commit_chunk(c, lease, part, counts, errors, device)
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
