"""One worker: its chunks, its engine, and the threads that keep both alive."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from engine.messages import Ready
from jobs import finalize
from jobs.errors import DatabaseError
from jobs.notifications.delivering import Deliverer
from jobs.periodic import Periodic
from jobs.records import ChunkLease
from jobs.storage import Storage
from jobs.store import Store
from jobs.workers import worker_id
from worker.attempt import Attempt, Means
from worker.bridge import EngineBridge
from worker.chunk_run import Stop
from worker.engine_meter import EngineMeter
from worker.engine_process import EngineProcess
from worker.errors import WorkerError
from worker.feeding import Feeder
from worker.options import WorkerOptions
from worker.presence import Presence
from worker.progress import log_progress
from worker.prompts import PromptEncoder
from worker.saving import Saver
from worker.snapshot import Snapshot, WorkerState
from worker.storage_watch import StorageWatch
from worker.workload import Outcome, Workload

log = logging.getLogger("pagemill.worker")


class Worker:
    """Runs chunks; each call of `run_chunk` comes from a thread of its own.

    Args:
        engine: a process that was started with the engine's settings in `options`, if any.

    Attributes:
        draining: set once no new chunk may be begun.
        failure: why it cannot go on, if so.
        on_finished: called when a chunk of it was the last step of something, of its job perhaps.
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
        self.on_finished: Callable[[], None] = lambda: None
        self._handing_back = threading.Event()
        self._stopped = False
        settings = options.settings
        self._meter = EngineMeter()
        self._workload = Workload()
        self._bridge = EngineBridge(
            options.engine,
            self._engine_failed,
            meter=self._meter,
            engine_timeout=settings.engine_timeout_seconds,
            engine_env=options.engine_env(),
            started=engine,
            on_device_time=self._workload.spend,
        )
        self._watch = StorageWatch(store)
        self._saver = Saver(self._watch, self._handing_back)
        self._feeder = Feeder(self._bridge, self._saver)
        self._ready: Ready | None = None
        self._encoder: PromptEncoder | None = None
        self._presence = Presence(
            store, self.id, options.model, options.concurrency, lambda: self.look().status()
        )
        self._heartbeat = Periodic("heartbeat", settings.heartbeat_seconds, self._beat)
        self._deliverer = Deliverer(settings, store, storage)
        self._teller = Periodic(
            "notifications", settings.sweep_seconds, self._deliverer.deliver_due
        )
        self._others = (
            self._teller,
            Periodic(
                "spooler", settings.spool_seconds, lambda: self._saver.save_due(self._workload.runs)
            ),
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
        self._deliverer.leave()
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
            notified=self._deliverer.delivered,
            notification_failures=self._deliverer.failures,
            notifications_given_up=self._deliverer.given_up,
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
        outcome = Attempt(self._means(), lease).run()
        self._workload.count(outcome)
        if outcome is Outcome.FAILED:
            self.on_finished()  # its job may have failed so
            return
        if finalize.drive(self.store, self.storage, self.id, lease.job_id):
            self._teller.nudge()
            self.on_finished()

    def _means(self) -> Means:
        assert self._ready is not None
        assert self._encoder is not None
        return Means(
            store=self.store,
            storage=self.storage,
            bridge=self._bridge,
            feeder=self._feeder,
            workload=self._workload,
            watch=self._watch,
            saver=self._saver,
            ready=self._ready,
            encoder=self._encoder,
            handing_back=self._handing_back,
        )

    def _beat(self) -> None:
        self._renew()
        self._presence.beat()

    def _renew(self) -> None:
        runs = {run.lease.chunk_id: run for run in self._workload.runs()}
        if not runs:
            return
        running = self._bridge.running()
        renewal = self.store.renew(
            self.id,
            {i: (run.lease.epoch, run.counts(running)) for i, run in runs.items()},
            {i: run.device_time() for i, run in runs.items()},
        )
        for chunk_id in renewal.lost:
            runs[chunk_id].stop(Stop.LEASE_LOST)
        for chunk_id in renewal.stopping:
            runs[chunk_id].stop(Stop.JOB_STOPPING)

    def _message(self) -> str | None:
        if self.failure is not None:
            return str(self.failure)
        waits_for = self._watch.waits_for
        if waits_for is not None:
            return f"waits for {waits_for}"
        step = self._bridge.loading
        if step is None or self._ready is None:
            return step
        return f"its engine died and another one starts: {step}"

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
