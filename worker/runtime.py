"""One worker: its leases, its engine, and the threads that keep both alive."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from engine.messages import Ready
from jobs import finalize
from jobs.errors import DatabaseError, OutputError, StorageUnavailable
from jobs.job_folder import JobFolder
from jobs.parts import read_chunk_input, write_part
from jobs.periodic import Periodic
from jobs.records import ChunkLease, ErrorTally
from jobs.result_table import failed_rows
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from jobs.store import Store
from jobs.tallies import tally_errors
from jobs.workers import worker_id
from worker.bridge import EngineBridge
from worker.chunk_log import ChunkLog
from worker.chunk_run import ChunkRun, Stop
from worker.engine_meter import EngineMeter
from worker.engine_process import EngineProcess
from worker.errors import WorkerError
from worker.feeding import Feeder
from worker.fingerprint import fingerprint
from worker.options import WorkerOptions
from worker.presence import Presence
from worker.progress import log_progress
from worker.prompts import PromptEncoder
from worker.requests import COLUMNS
from worker.snapshot import Snapshot, WorkerState
from worker.storage_watch import StorageWatch
from worker.trials import Trials
from worker.workload import Outcome, Workload

log = logging.getLogger("pagemill.worker")

_T = TypeVar("_T")

COMMIT_AGAIN_SECONDS = 1.0  # between two tries to commit a chunk
# Errors that another worker need not give.
OF_THE_WORKER = frozenset({"kv_cache_too_small", "out_of_memory"})


class Worker:
    """Runs chunks; each call of `run_chunk` comes from a thread of its own.

    Args:
        engine: a process that was started with the engine's settings in `options`, if any.

    Attributes:
        draining: set once no new chunk may be begun.
        failure: why it cannot go on, if so.
    """

    def __init__(
        self,
        options: WorkerOptions,
        store: Store,
        storage: Storage,
        engine: EngineProcess | None = None,
    ) -> None:
        self.id = worker_id()
        self.options = options
        self.store = store.acting_as(self.id)
        self.storage = storage
        self.failure: Exception | None = None
        self.draining = threading.Event()
        self._handing_back = threading.Event()
        self._stopped = False
        settings = options.settings
        self._meter = EngineMeter()
        self._bridge = EngineBridge(
            options.engine,
            self._engine_failed,
            meter=self._meter,
            engine_timeout=settings.engine_timeout_seconds,
            engine_env=options.engine_env(),
            started=engine,
        )
        self._feeder = Feeder(
            self._bridge, lambda run: self._patiently(run, _spool_of(run), run.flush)
        )
        self._workload = Workload()
        self._watch = StorageWatch(store)
        self._ready: Ready | None = None
        self._encoder: PromptEncoder | None = None
        self._presence = Presence(
            store, self.id, options.model, options.concurrency, lambda: self.look().status()
        )
        self._heartbeat = Periodic("heartbeat", settings.heartbeat_seconds, self._beat)
        self._others = (
            Periodic("spooler", settings.spool_seconds, self._flush),
            Periodic("progress", options.progress_seconds, lambda: log_progress(self.look)),
        )

    def start(self) -> None:
        """Load the model; meanwhile the worker is known to the others.

        Raises:
            WorkerError: it cannot be served.
        """
        self._heartbeat.start()
        self._ready = self._bridge.start(self._load_tokenizer)
        for periodic in self._others:
            periodic.start()

    def _load_tokenizer(self, model_path: str) -> None:
        self._encoder = PromptEncoder(model_path)

    def close(self) -> None:
        """End the engine and the threads, and say so; chunks must have been left before."""
        for periodic in self._others:
            periodic.stop()
        self._bridge.close()
        self._heartbeat.stop()
        self._stopped = True
        self._presence.leave()

    @property
    def held(self) -> int:
        """Chunks that this worker works on."""
        return len(self._workload)

    def look(self) -> Snapshot:
        """How it stands now."""
        ready = self._ready
        return Snapshot(
            state=self._state(),
            message=self._message(),
            device=None if ready is None else ready.device,
            dtype=None if ready is None else ready.dtype,
            engine=self._meter.totals(),
            engine_restarts=self._meter.restarts,
            rows_suspected=self._bridge.suspects,
            rows_blamed=self._meter.rows_blamed,
            tokens_per_second=self._meter.tokens_per_second(),
            work=self._workload.totals(),
            heartbeat_age=self._heartbeat.age,
            heartbeat_failures=self._heartbeat.failures,
        )

    def hand_back(self) -> None:
        """Leave all chunks at once; others go on where these stand."""
        self.draining.set()
        self._handing_back.set()
        for run in self._workload.runs():
            run.stop(Stop.HAND_BACK)

    def run_chunk(self) -> bool:
        """Claim the best free chunk and bring it to its end; false if there is none."""
        if self.draining.is_set() or not self._watch.readable:
            return False
        try:
            lease = self.store.claim_chunk(self.id, self.options.model)
            if lease is not None:
                self._work_on(lease)
        except DatabaseError as error:  # whatever was not done, a sweeper does later
            log.warning("%s", error, extra={"event": "database_away"})
            return False
        return lease is not None

    def _work_on(self, lease: ChunkLease) -> None:
        chunk_log = ChunkLog(log, lease)
        chunk_log.info(
            "leased (epoch %d, %d rows)", lease.epoch, lease.rows,
            extra={"event": "chunk_leased", "rows": lease.rows},
        )  # fmt: skip
        outcome = self._attempt(lease, chunk_log)
        self._workload.count(outcome)
        if outcome is not Outcome.FAILED:
            finalize.drive(self.store, self.storage, self.id, lease.job_id)

    def _attempt(self, lease: ChunkLease, chunk_log: ChunkLog) -> Outcome:
        """Run a chunk; whatever goes wrong ends with it."""
        try:
            return self._run(lease, chunk_log)
        except OutputError as error:
            chunk_log.error("%s", error, extra={"event": "chunk_failed"})
            self.store.fail_job(lease.job_id, "files_damaged", str(error))
        except Exception:
            # The lease is left to run out: to hand the chunk back at once would only bring it
            # back at once. What was spooled stays; the next worker starts from there.
            chunk_log.exception(
                "failed here; its lease is left to run out", extra={"event": "chunk_failed"}
            )
        return Outcome.FAILED

    def _run(self, lease: ChunkLease, chunk_log: ChunkLog) -> Outcome:
        assert self._ready is not None
        assert self._encoder is not None
        began = time.monotonic()
        folder = self.storage.job(lease.folder)
        mark = fingerprint(lease, self._ready, self._encoder.digest)
        try:
            table, adopted = _read(folder, lease, mark)
        except StorageUnavailable as error:
            self.store.release_chunk(lease)
            self._watch.refused(
                f"input of {lease.chunk_id}", lease.job_id, error,
                probe=lambda: _read(folder, lease, mark),
            )  # fmt: skip
            return Outcome.HANDED_BACK
        rows = table.select(COLUMNS).to_pylist()
        if adopted.num_rows:
            chunk_log.info(
                "%d finished rows adopted", adopted.num_rows,
                extra={"event": "rows_adopted", "rows": adopted.num_rows},
            )  # fmt: skip
        run = ChunkRun(
            lease,
            SpoolWriter(folder, lease.chunk_id, lease.epoch, mark),
            {r["row_index"]: r["line"] for r in rows},
            adopted,
        )
        todo = [r for r in rows if not run.is_finished(r["row_index"])]
        trials = Trials(folder, lease, [r["row_index"] for r in todo], adopted.num_rows)
        self._workload.begin(run)
        try:
            if self._handing_back.is_set():  # since before this run could be seen
                run.stop(Stop.HAND_BACK)
            self._feeder.feed(run, todo, trials, self._encoder, self._ready.max_model_len)
            if run.wait() not in (None, Stop.LEASE_LOST):
                trials.end()
            outcome = self._end(run, folder, table, mark, chunk_log)
        except Exception:
            trials.end()
            raise
        finally:
            self._bridge.abort(run.unfinished())
            self._workload.end(run)
            self._watch.worked(_spool_of(run))
        _log_end(chunk_log, run, outcome, time.monotonic() - began)
        return outcome

    def _end(
        self, run: ChunkRun, folder: JobFolder, table: pa.Table, mark: str, chunk_log: ChunkLog
    ) -> Outcome:
        """Wait for the end of a run, and make it known."""
        reason = run.wait()
        if reason is None:
            results = run.results()
            try:
                part = self._patiently(
                    run,
                    f"part of {run.lease.chunk_id}",
                    lambda: write_part(folder, run.lease, table, results, mark),
                )
            except StorageUnavailable:
                return self._leave(run, chunk_log)
            errors = tally_errors(failed_rows(results))
            done = self._commit(run, part, errors, chunk_log)
            return Outcome.DONE if done else Outcome.FENCED
        return self._leave(run, chunk_log)

    def _leave(self, run: ChunkRun, chunk_log: ChunkLog) -> Outcome:
        """Leave a chunk to others, with its finished rows in the spool."""
        if run.is_lost:
            return Outcome.FENCED
        self._bridge.abort(run.unfinished())
        try:
            self._patiently(run, _spool_of(run), run.flush)
        except StorageUnavailable as error:
            if run.is_lost:
                return Outcome.FENCED
            chunk_log.warning(
                "finished rows that are not in the spool are lost and will be computed again: %s",
                error,
                extra={"event": "rows_lost"},
            )
        self.store.release_chunk(run.lease, run.spooled_counts())
        return Outcome.HANDED_BACK

    def _patiently(self, run: ChunkRun, name: str, action: Callable[[], _T]) -> _T:
        """Do something with the storage as soon as it lets us; the answers wait in memory.

        Raises:
            StorageUnavailable: the chunk had to be left before.
        """

        def leave(pause: float) -> bool:
            return self._handing_back.wait(pause) or run.is_lost

        return self._watch.until_done(name, run.lease.job_id, action, leave)

    def _commit(
        self, run: ChunkRun, part: str, errors: Sequence[ErrorTally], chunk_log: ChunkLog
    ) -> bool:
        """Commit a finished chunk; False if its lease was lost.

        A database that is away for less than a lease costs nothing that was computed.
        """
        give_up = time.monotonic() + self.store.lease_seconds
        while True:
            try:
                return self.store.commit_chunk(run.lease, part, run.counts(), errors)
            except DatabaseError as error:
                if time.monotonic() > give_up or self._handing_back.wait(COMMIT_AGAIN_SECONDS):
                    raise
                chunk_log.warning(
                    "not committed yet, will be tried again: %s", error,
                    extra={"event": "commit_delayed"},
                )  # fmt: skip

    def _beat(self) -> None:
        self._renew()
        self._presence.beat()

    def _renew(self) -> None:
        runs = {run.lease.chunk_id: run for run in self._workload.runs()}
        if not runs:
            return
        running = self._bridge.running()
        renewal = self.store.renew(
            self.id, {i: (run.lease.epoch, run.counts(running)) for i, run in runs.items()}
        )
        for chunk_id in renewal.lost:
            runs[chunk_id].stop(Stop.LEASE_LOST)
        for chunk_id in renewal.stopping:
            runs[chunk_id].stop(Stop.JOB_STOPPING)

    def _flush(self) -> None:
        self._watch.probe()
        for run in self._workload.runs():
            name = _spool_of(run)
            if not self._watch.is_due(name):
                continue
            try:
                run.flush()
            except StorageUnavailable as error:
                self._watch.refused(name, run.lease.job_id, error)
                if run in self._workload.runs():
                    continue
            self._watch.worked(name)

    def _message(self) -> str | None:
        if self.failure is not None:
            return str(self.failure)
        waits_for = self._watch.waits_for
        return None if waits_for is None else f"waits for {waits_for}"

    def _state(self) -> WorkerState:
        if self.failure is not None:
            return WorkerState.FAILED
        if self._stopped:
            return WorkerState.STOPPED
        if self.draining.is_set():
            return WorkerState.DRAINING
        return WorkerState.STARTING if self._ready is None else WorkerState.READY

    def _engine_failed(self, error: WorkerError) -> None:
        log.error("%s", error, extra={"event": "engine_lost"})
        self.failure = error
        self.hand_back()


def _read(folder: JobFolder, lease: ChunkLease, mark: str) -> tuple[pa.Table, pa.Table]:
    """The rows of a chunk, and the answers that the spool has of them."""
    table = read_chunk_input(folder, lease.input_path, lease.ordinal)
    return table, read_spool(folder, lease.chunk_id, mark, skip_errors=OF_THE_WORKER)


def _spool_of(run: ChunkRun) -> str:
    return f"spool of {run.lease.chunk_id}"


def _log_end(chunk_log: ChunkLog, run: ChunkRun, outcome: Outcome, seconds: float) -> None:
    counts = run.counts()
    said = {
        Outcome.FENCED: "fenced: another worker has it by now",
        Outcome.HANDED_BACK: run.stop_reason.value if run.stop_reason is not None else "",
    }.get(outcome, "done")
    chunk_log.info(
        "%s: %d of %d rows, %d of them errors, %d tokens generated, in %.1f s",
        said, counts.rows, run.lease.rows, counts.failed, counts.completion_tokens, seconds,
        extra={
            "event": f"chunk_{outcome}",
            "rows": counts.rows,
            "errors": counts.failed,
            "prompt_tokens": counts.prompt_tokens,
            "cached_tokens": counts.cached_tokens,
            "completion_tokens": counts.completion_tokens,
            "seconds": round(seconds, 3),
        },
    )  # fmt: skip
