"""One worker: its leases, its engine, and the threads that keep both alive."""

from __future__ import annotations

import logging
import threading

from engine.messages import Ready
from jobs import finalize
from jobs.errors import OutputError
from jobs.parts import read_chunk_input, write_part
from jobs.periodic import Periodic
from jobs.records import ChunkLease
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from jobs.store import Store
from jobs.workers import worker_id
from worker.bridge import EngineBridge
from worker.chunk_run import ChunkRun, Stop
from worker.errors import WorkerError
from worker.fingerprint import fingerprint
from worker.options import WorkerOptions
from worker.prompts import PromptEncoder
from worker.requests import COLUMNS, prepare

log = logging.getLogger("pagemill.worker")

OF_THE_WORKER = frozenset({"kv_cache_too_small"})  # errors that another worker need not give


class Worker:
    """Runs chunks; each call of `run_chunk` comes from a thread of its own.

    Attributes:
        draining: set once no new chunk may be begun.
        failure: why no engine can be had any more, if so.
    """

    def __init__(self, options: WorkerOptions, store: Store, storage: Storage) -> None:
        self.id = worker_id()
        self.options = options
        self.store = store
        self.storage = storage
        self.failure: WorkerError | None = None
        self.draining = threading.Event()
        self._handing_back = threading.Event()
        self._bridge = EngineBridge(options.engine, self._engine_failed)
        self._runs: dict[str, ChunkRun] = {}
        self._runs_lock = threading.Lock()
        self._ready: Ready | None = None
        self._encoder: PromptEncoder | None = None
        settings = options.settings
        self._heartbeat = Periodic("heartbeat", settings.heartbeat_seconds, self._renew)
        self._spooler = Periodic("spooler", settings.spool_seconds, self._flush)

    def start(self) -> None:
        """Load the model.

        Raises:
            WorkerError: it cannot be served.
        """
        self._ready = self._bridge.start()
        self._encoder = PromptEncoder(self._ready.model_path)
        self._heartbeat.start()
        self._spooler.start()

    def close(self) -> None:
        """End the engine and the threads; chunks must have been left before."""
        self._heartbeat.stop()
        self._spooler.stop()
        self._bridge.close()

    @property
    def held(self) -> int:
        """Chunks that this worker works on."""
        with self._runs_lock:
            return len(self._runs)

    def hand_back(self) -> None:
        """Leave all chunks at once; others go on where these stand."""
        self.draining.set()
        self._handing_back.set()
        for run in self._current():
            run.stop(Stop.HAND_BACK)

    def run_chunk(self, chunk_id: str) -> None:
        """Claim the best free chunk (this one, if it is free) and bring it to its end."""
        if self.draining.is_set():
            return
        lease = self.store.claim_chunk(self.id, self.options.model, preferred=chunk_id)
        if lease is None:
            return
        log.info("chunk %s: leased (epoch %d, %d rows)", lease.chunk_id, lease.epoch, lease.rows)
        try:
            self._run(lease)
        except OutputError as error:
            log.error("chunk %s: %s", lease.chunk_id, error)
            self.store.fail_job(lease.job_id, "files_damaged", str(error))
        except Exception:
            # The lease is left to run out: to hand the chunk back at once would only bring it
            # back at once. What was spooled stays; the next worker starts from there.
            log.exception("chunk %s: failed here; its lease is left to run out", lease.chunk_id)
        else:
            finalize.drive(self.store, self.storage, self.id, lease.job_id)

    def _run(self, lease: ChunkLease) -> None:
        assert self._ready is not None
        assert self._encoder is not None
        folder = self.storage.job(lease.folder)
        table = read_chunk_input(folder, lease.input_path, lease.ordinal)
        rows = table.select(COLUMNS).to_pylist()
        mark = fingerprint(lease, self._ready, self._encoder.digest)
        adopted = read_spool(folder, lease.chunk_id, mark, skip_errors=OF_THE_WORKER)
        if adopted.num_rows:
            log.info("chunk %s: %d finished rows adopted", lease.chunk_id, adopted.num_rows)
        run = ChunkRun(
            lease,
            SpoolWriter(folder, lease.chunk_id, lease.epoch, mark),
            {r["row_index"]: r["line"] for r in rows},
            adopted,
        )
        with self._runs_lock:
            former = self._runs.get(lease.chunk_id)
            self._runs[lease.chunk_id] = run
        if former is not None:  # its lease ran out, and we were given the chunk again
            former.stop(Stop.LEASE_LOST)
        try:
            if self._handing_back.is_set():  # since before this run could be seen
                run.stop(Stop.HAND_BACK)
            todo = [r for r in rows if not run.is_finished(r["row_index"])]
            for prepared in prepare(lease, todo, self._encoder, self._ready.max_model_len):
                if run.stop_reason is not None:
                    break
                run.expect(prepared)
                self._bridge.submit(prepared.requests, run.accept)
            reason = run.wait()
            if reason is None:
                part = write_part(folder, lease, table, run.results(), mark)
                committed = self.store.commit_chunk(lease, part, run.counts())
                outcome = "done" if committed else "fenced: another worker has it by now"
            else:
                outcome = reason.value
                if reason is not Stop.LEASE_LOST:
                    run.flush()
                    self.store.release_chunk(lease, run.counts())
            log.info("chunk %s: %s", lease.chunk_id, outcome)
        finally:
            self._bridge.abort(run.unfinished())
            with self._runs_lock:
                if self._runs.get(lease.chunk_id) is run:
                    del self._runs[lease.chunk_id]

    def _current(self) -> list[ChunkRun]:
        with self._runs_lock:
            return list(self._runs.values())

    def _renew(self) -> None:
        runs = {run.lease.chunk_id: run for run in self._current()}
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
        for run in self._current():
            run.flush()

    def _engine_failed(self, error: WorkerError) -> None:
        log.error("%s", error)
        self.failure = error
        self.hand_back()
