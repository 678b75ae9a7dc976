"""A worker without an engine: a chunk's rows are answered by waiting a little."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from typing import Any

from celery.worker import state

from jobs.database import Database
from jobs.records import Counts
from jobs.settings import Settings
from jobs.store import Store
from tests.support.job_store import ROWS
from worker.app import Consumer, stop_consuming
from worker.options import WorkerOptions
from worker.slots import Slots
from worker.waker import Waker

MODEL = "m"


class Drainer:
    """The consumer, the slots and the waker of a worker, all of them real.

    Attributes:
        done: how often each chunk was committed.
        most: chunks that ran at the same time, at most.
        gate: cleared, it keeps the chunks that run from their end.
    """

    def __init__(self, settings: Settings, *, slots: int = 2, seconds: float = 0.05) -> None:
        self.settings = dataclasses.replace(settings, sweep_seconds=0.5)
        self.options = WorkerOptions(self.settings, MODEL, {}, concurrency=slots)
        self.database = Database(settings.database_url)
        self.store = Store(self.database)
        self.draining = threading.Event()
        self.done: Counter[str] = Counter()
        self.order: list[str] = []
        self.running = self.most = 0
        self.seconds = seconds
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        state.should_stop = None  # of an earlier consumer in this process
        self.slots = Slots(slots, self._run_chunk, lambda: self.waker.nudge())
        self.consumer = Consumer(
            self.settings, MODEL, slots, f"host:{id(self)}:x", self.slots.run,
            on_connected=lambda: self.waker.nudge(),
        )  # fmt: skip
        self.waker = Waker(self, self.slots, self.consumer)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self.consumer.run)

    def __enter__(self) -> Drainer:
        self.waker.start()
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()
        self.database.close()

    def stop(self) -> None:
        """Leave as a worker does at the first signal; returns when it has left."""
        self.draining.set()
        self.gate.set()
        stop_consuming()
        self._thread.join()
        self.slots.join()
        self.waker.stop()
        self.consumer.close()

    def drained(self, job_id: str, seconds: float = 120) -> None:
        """Wait until all chunks of a job are done."""
        deadline = time.monotonic() + seconds
        while self.store.job(job_id).chunks_left:
            assert time.monotonic() < deadline, f"{sum(self.done.values())} chunks are done"
            time.sleep(0.02)

    def _run_chunk(self) -> bool:
        if self.draining.is_set():
            return False
        lease = self.store.claim_chunk("w", MODEL)
        if lease is None:
            return False
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.order.append(lease.job_id)
        self.gate.wait()
        time.sleep(self.seconds)
        with self._lock:
            self.running -= 1
            self.done[lease.chunk_id] += 1
        assert self.store.commit_chunk(lease, lease.chunk_id, Counts(completed=ROWS))
        return True
