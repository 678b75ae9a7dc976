"""A worker on a real store, with an engine that answers only when the test says so."""

from __future__ import annotations

import threading

from engine.messages import Ready
from engine.request import FinishReason, RequestOutput
from jobs.database import Database, upgrade
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from jobs.submission import Submission, prepare
from tests.support.tiny_model import byte_tokenizer
from worker import runtime
from worker.options import WorkerOptions
from worker.runtime import Worker


class HeldBridge:
    """An engine that keeps its requests until `answer` is called."""

    suspects = 0
    loading = None

    def __init__(self, config, on_failure, *, meter, **options):
        self.meter = meter
        self.on_failure = on_failure
        self.waiting = {}
        self.submitted = threading.Event()
        self.folder = config["model"]
        self.refusal = None

    def start(self, on_located):
        if self.refusal is not None:
            raise self.refusal
        on_located(self.folder)
        return Ready(self.folder, "rev", "float32", "float16", "cpu", 512, 16, 64, 0.1)

    def submit(self, requests, sink, *, apart=None):
        if apart is not None:
            apart()
        self.waiting.update((r.request_id, (r, sink)) for r in requests)
        self.submitted.set()

    def abort(self, request_ids):
        for request_id in request_ids:
            self.waiting.pop(request_id, None)

    def running(self):
        return {}

    def close(self):
        assert not self.waiting, "requests were left in the engine"

    def answer(self, count=None, error=None):
        for request_id in list(self.waiting)[:count]:
            request, sink = self.waiting.pop(request_id)
            n = len(request.token_ids)
            reason = FinishReason.STOP if error is None else FinishReason.ERROR
            sink(RequestOutput(request_id, (1,), "ok", reason, n, 0, 1, error, error))


class Place:
    """A job of five rows in one chunk, and workers for it."""

    def __init__(self, home, monkeypatch):
        monkeypatch.setattr(runtime, "EngineBridge", HeldBridge)
        self.settings = Settings.from_env(
            {
                "PAGEMILL_HOME": str(home),
                "PAGEMILL_SPOOL_SECONDS": "3600",
                "PAGEMILL_HEARTBEAT_SECONDS": "0.05",
            }
        )
        self.model = str(home / "model")
        byte_tokenizer().save_pretrained(self.model)
        upgrade(self.settings.database_url)
        self.database = Database(self.settings.database_url)
        self.store = Store(self.database, lease_seconds=60)
        self.storage = Storage(self.settings.storage_url)
        path = home / "in.jsonl"
        path.write_text('{"prompt": "x"}\n' * 5)
        self.job = self.store.insert_job(
            prepare(Submission(input=str(path), model=self.model), self.storage)
        ).id
        self.workers = []
        self.threads = []

    def new_worker(self, **options):
        """A worker that was not started."""
        options = WorkerOptions(self.settings, self.model, {"model": self.model}, **options)
        made = Worker(options, self.store, self.storage)
        self.workers.append(made)
        return made

    def worker(self, **options):
        made = self.new_worker(**options)
        made.start()
        return made

    def row(self, worker):
        """What the table of workers says of one."""
        return next((w for w in self.store.workers(all=True) if w.id == worker.id), None)

    def chunk(self):
        (chunk,) = self.store.chunks(self.job)
        return chunk

    def begin(self, worker):
        """Run the chunk in a thread; returns once its rows are in the engine."""
        thread = threading.Thread(target=worker.run_chunk, daemon=True)
        self.threads.append(thread)
        thread.start()
        assert worker._bridge.submitted.wait(60)
        return thread

    def close(self):
        """End the workers; a chunk that a failed test has left is handed back before."""
        if any(thread.is_alive() for thread in self.threads):
            for worker in self.workers:
                worker.hand_back()
            for thread in self.threads:
                thread.join(60)
        for worker in self.workers:
            worker.close()
        self.database.close()


def lines(caplog, event):
    """The log lines of one kind, each as its fields."""
    return [vars(r) for r in caplog.records if vars(r).get("event") == event]
