"""One leased chunk, from its claim to its commit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from engine.messages import Ready
from jobs.attempts import failed_for_good
from jobs.errors import DatabaseError, OutputError, StorageUnavailable
from jobs.job_folder import JobFolder
from jobs.parts import read_chunk_input, write_part
from jobs.records import ChunkLease, ErrorTally
from jobs.result_table import failed_rows
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from jobs.store import Store
from jobs.tallies import tally_errors
from worker.bridge import EngineBridge
from worker.chunk_log import ChunkLog, log_end
from worker.chunk_run import ChunkRun, Stop
from worker.feeding import Feeder
from worker.fingerprint import fingerprint
from worker.prompts import PromptEncoder
from worker.requests import COLUMNS
from worker.saving import Saver
from worker.storage_watch import StorageWatch
from worker.trial_records import Record, TrialRecords
from worker.trials import Trials
from worker.workload import Outcome, Workload

log = logging.getLogger("pagemill.worker")

COMMIT_AGAIN_SECONDS = 1.0  # between two tries to commit a chunk
# Errors that another worker need not give.
OF_THE_WORKER = frozenset({"kv_cache_too_small", "out_of_memory", "too_many_beams"})


@dataclass(frozen=True, slots=True)
class Means:
    """What a worker has for all its chunks.

    Attributes:
        ready, encoder: the model that is served, and its tokenizer.
        handing_back: set once chunks are to be left at once.
    """

    store: Store
    storage: Storage
    bridge: EngineBridge
    feeder: Feeder
    workload: Workload
    watch: StorageWatch
    saver: Saver
    ready: Ready
    encoder: PromptEncoder
    handing_back: threading.Event


class Attempt:
    """Brings a chunk to its end under one lease."""

    def __init__(self, means: Means, lease: ChunkLease) -> None:
        self._means = means
        self._lease = lease
        self._log = ChunkLog(log, lease)

    @cached_property
    def _folder(self) -> JobFolder:
        return self._means.storage.job(self._lease.folder)

    @cached_property
    def _mark(self) -> str:
        return fingerprint(self._lease, self._means.ready, self._means.encoder.digest)

    @cached_property
    def _records(self) -> TrialRecords:
        return TrialRecords(self._folder, self._lease.chunk_id)

    def run(self) -> Outcome:
        """Do what can be done; whatever goes wrong ends with it.

        Raises:
            DatabaseError: the end could not be told to the database; a sweeper finds out.
        """
        lease = self._lease
        self._log.info(
            "leased (epoch %d, %d rows)", lease.epoch, lease.rows,
            extra={"event": "chunk_leased", "rows": lease.rows},
        )  # fmt: skip
        try:
            return self._read_and_run()
        except OutputError as error:
            if not self._means.store.fail_job(lease.job_id, "files_damaged", str(error), lease):
                self._log.warning("fenced: %s", error, extra={"event": "chunk_fenced"})
                return Outcome.FENCED
            self._log.error("%s", error, extra={"event": "chunk_failed"})
        except Exception as error:
            # The lease is left to run out: to hand the chunk back at once would only bring it
            # back at once. What was spooled stays; the next worker starts from there.
            self._log.exception(
                "failed here; its lease is left to run out", extra={"event": "chunk_failed"}
            )
            if not isinstance(error, DatabaseError):
                failed_for_good(self._means.store, lease, error)
        return Outcome.FAILED

    def _read_and_run(self) -> Outcome:
        began = time.monotonic()
        try:
            table, adopted, former = self._read()
        except StorageUnavailable as error:
            self._means.store.release_chunk(self._lease)
            self._means.watch.refused(
                f"input of {self._lease.chunk_id}", self._lease.job_id, error, probe=self._read
            )
            return Outcome.HANDED_BACK
        if adopted.num_rows:
            self._log.info(
                "%d finished rows adopted", adopted.num_rows,
                extra={"event": "rows_adopted", "rows": adopted.num_rows},
            )  # fmt: skip
        rows = table.select(COLUMNS).to_pylist()
        run = ChunkRun(
            self._lease,
            SpoolWriter(self._folder, self._lease.chunk_id, self._lease.epoch, self._mark),
            {r["row_index"]: r["line"] for r in rows},
            adopted,
            on_gpu=self._means.ready.device.startswith("cuda"),
        )
        todo = [r for r in rows if not run.is_finished(r["row_index"])]
        means = self._means
        trials = Trials(
            self._records, self._lease, former, [r["row_index"] for r in todo], adopted.num_rows,
            patience=means.store.lease_seconds,
        )  # fmt: skip
        means.workload.begin(run)
        try:
            if means.handing_back.is_set():  # since before this run could be seen
                run.stop(Stop.HAND_BACK)
            means.feeder.feed(run, todo, trials, means.encoder, means.ready.max_model_len)
            if run.wait() is not None:
                trials.end()
            outcome = self._end(run, table)
        except Exception:
            trials.end()
            self._spool(run)
            raise
        finally:
            means.bridge.abort(run.unfinished())
            means.workload.end(run)
            means.saver.forget(run)
        log_end(self._log, run, outcome, time.monotonic() - began)
        return outcome

    def _read(self) -> tuple[pa.Table, pa.Table, Record | None]:
        """The rows of the chunk, the answers in its spool, and what the lease before found out."""
        lease = self._lease
        table = read_chunk_input(self._folder, lease.input_path, lease.ordinal)
        adopted = read_spool(self._folder, lease.chunk_id, self._mark, skip_errors=OF_THE_WORKER)
        return table, adopted, self._records.before(lease)

    def _end(self, run: ChunkRun, table: pa.Table) -> Outcome:
        """Wait for the end of a run, and make it known."""
        if run.wait() is not None:
            return self._leave(run)
        results = run.results()
        try:
            part = self._means.saver.patiently(
                run,
                f"part of {self._lease.chunk_id}",
                lambda: write_part(self._folder, self._lease, table, results, self._mark),
            )
        except StorageUnavailable:
            return self._leave(run)
        errors = tally_errors(failed_rows(results))
        try:
            done = self._commit(run, part, errors)
        except DatabaseError:
            if self._means.handing_back.is_set():
                return self._leave(run)
            self._spool(run)
            raise
        return Outcome.DONE if done else Outcome.FENCED

    def _leave(self, run: ChunkRun) -> Outcome:
        """Leave the chunk to others, with its finished rows in the spool."""
        if run.is_lost:
            return Outcome.FENCED
        self._means.bridge.abort(run.unfinished())
        self._spool(run)
        if run.is_lost:
            return Outcome.FENCED
        self._means.store.release_chunk(self._lease, run.spooled_counts(), run.device_time())
        return Outcome.HANDED_BACK

    def _spool(self, run: ChunkRun) -> None:
        """Write what is finished to the spool, if the storage lets us before we have to leave."""
        try:
            self._means.saver.save(run)
        except StorageUnavailable as error:
            if run.is_lost:
                return
            self._log.warning(
                "finished rows that are not in the spool are lost and will be computed again: %s",
                error,
                extra={"event": "rows_lost"},
            )

    def _commit(self, run: ChunkRun, part: str, errors: Sequence[ErrorTally]) -> bool:
        """Commit a finished chunk; False if its lease was lost.

        A database that is away for less than a lease costs nothing that was computed.
        """
        store, handing_back = self._means.store, self._means.handing_back
        give_up = time.monotonic() + store.lease_seconds
        while True:
            try:
                return store.commit_chunk(
                    self._lease, part, run.counts(), errors, run.device_time()
                )
            except DatabaseError as error:
                if time.monotonic() > give_up or handing_back.wait(COMMIT_AGAIN_SECONDS):
                    raise
                self._log.warning(
                    "not committed yet, will be tried again: %s", error,
                    extra={"event": "commit_delayed"},
                )  # fmt: skip
