"""The life of a worker process: load, consume, drain, leave."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from jobs.database import Database
from jobs.errors import DatabaseError, DatabaseUnavailable, StorageUnavailable
from jobs.storage import Storage
from jobs.store import Store
from jobs.waiting import in_pieces
from worker.app import Consumer, stop_consuming
from worker.engine_process import EngineProcess
from worker.errors import WorkerError
from worker.leave import Leave, end_at_once
from worker.metrics import worker_registry
from worker.metrics_server import MetricsServer
from worker.options import WorkerOptions
from worker.runtime import Worker
from worker.slots import Slots
from worker.sweeper import Sweeper
from worker.waker import Waker

log = logging.getLogger("pagemill.worker")

DATABASE_SECONDS = 60.0  # that a database may be away when a worker starts


def run(options: WorkerOptions, engine: EngineProcess) -> int:
    """Run a worker until it is told to leave; returns the exit status.

    Args:
        engine: already started, with the settings in `options`.

    Raises:
        WorkerError: the model cannot be served.
        JobsError: the database cannot be used.
    """
    settings = options.settings
    database = Database(settings.database_url, on_wait=_tell_of_wait)
    try:
        _check(database)
        store = Store(database, lease_seconds=settings.lease_seconds)
        storage = Storage(settings.storage_url)
        _look_for(storage, store)
        worker = Worker(options, store, storage, engine)
        with _named_in_the_log(worker.id), _monitored(worker):
            _live(worker)
        failure = worker.failure
        return failure.exit_code if isinstance(failure, WorkerError) else 0
    finally:
        database.close()


def _check(database: Database) -> None:
    """See that the tables fit; a database that is away is waited for, as it is later on."""
    give_up = time.monotonic() + DATABASE_SECONDS
    told = False
    while True:
        try:
            return database.check_revision()
        except DatabaseUnavailable as error:
            if time.monotonic() > give_up:
                raise
            if not told:
                _tell_of_wait(error)
            told = True
        time.sleep(1)


def _tell_of_wait(error: DatabaseError) -> None:
    log.warning("waiting for the %s", error, extra={"event": "database_away"})


def _look_for(storage: Storage, store: Store) -> None:
    """Tell at once of a storage that is not there; chunks wait for it."""
    try:
        if store.list_jobs(limit=1):  # the first job makes it
            storage.check()
    except StorageUnavailable as error:
        log.warning("%s", error, extra={"event": "storage_away"})
    except DatabaseUnavailable:  # of which the heartbeat tells
        pass


def _live(worker: Worker) -> None:
    leave = Leave(worker, stop_consuming, end_at_once)
    leave.on_signals()
    try:
        worker.start()
        _consume(worker, leave)
    except Exception as error:
        worker.failure = error
        raise
    finally:
        with leave.soon_over():
            worker.close()


@contextlib.contextmanager
def _monitored(worker: Worker) -> Iterator[None]:
    """Serve metrics and health, if that was asked for."""
    options = worker.options
    if options.metrics_port is None:
        yield
        return
    server = MetricsServer(
        options.metrics_host,
        options.metrics_port,
        worker_registry(worker.look, options.model),
        lambda: worker.look().trouble(options.settings.lease_seconds),
    )
    log.info("metrics at %s", server.url, extra={"event": "metrics", "url": server.url})
    server.start()
    try:
        yield
    finally:
        server.close()


@contextlib.contextmanager
def _named_in_the_log(worker_id: str) -> Iterator[None]:
    """Every line of this process names the worker, for those who gather the logs of many."""

    def name(record: logging.LogRecord) -> bool:
        if not hasattr(record, "worker_id"):
            record.worker_id = worker_id
        return True

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(name)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(name)


def _consume(worker: Worker, leave: Leave) -> None:
    options = worker.options
    slots = Slots(options.concurrency, worker.run_chunk, lambda: waker.nudge())
    consumer = Consumer(
        options.settings, options.model, options.concurrency, worker.id, slots.run,
        on_connected=lambda: waker.nudge(),
    )  # fmt: skip
    waker = Waker(worker, slots, consumer)
    sweeper = Sweeper(worker, waker.nudge)
    for thread in (waker, sweeper, leave):
        thread.start()
    try:
        log.info(
            "worker %s: ready for chunks of %s", worker.id, options.model,
            extra={"event": "ready", "model": options.model},
        )  # fmt: skip
        consumer.run()
        if not worker.draining.is_set():
            log.error(
                "messages are not taken any more; chunks are taken from the database until this "
                "worker is started again", extra={"event": "consumer_lost"},
            )  # fmt: skip
            in_pieces(worker.draining.wait)
        slots.join()
    finally:
        for thread in (sweeper, waker, leave):  # it watches whether the others can be stopped
            thread.stop()
        consumer.close()
