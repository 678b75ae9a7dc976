"""Workers that are killed at random moments, on places that have faults of their own."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow.parquet as pq

from jobs.database import Database
from jobs.store import Store
from tests.support.child import child
from tests.support.crashes import ENGINE, check_answers, check_books, differences, rows
from tests.support.deployment import Deployment, RunningWorker, wait_for
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer

WORKERS = 3
MOST_AT_ONCE = 3  # kills and faults at one moment
ROWS_BETWEEN = 8  # rows that are finished between two faults
ROWS_OF_A_JOB = 100
ROWS_IN_STORE = 60  # so many are left at each fault, however quick the machine is
ENGINE_LOST = 4  # exit status of a worker whose engine died too often, or while it was loaded

_LOCK = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
file.execute("BEGIN EXCLUSIVE")
sys.stdin.read()
"""


class Place(Protocol):
    """A deployment, and what can go wrong where it lives: a method for each fault."""

    name: str
    faults: tuple[str, ...]
    deployment: Deployment


class Local:
    """SQLite, and no server."""

    name = "sqlite"
    faults = ("lock",)

    def __init__(self, folder: Path) -> None:
        self.deployment = Deployment(folder / "home")

    def lock(self) -> None:
        """Another process has the database to itself for ten seconds."""
        path = self.deployment.home / "pagemill.db"
        command = [sys.executable, "-c", _LOCK, str(path)]
        with child(command, stdin=subprocess.PIPE) as other:
            time.sleep(10)
            assert other.stdin is not None
            other.stdin.close()
            assert other.wait(60) == 0


class Servers:
    """PostgreSQL and Redis, which nobody else uses."""

    name = "postgresql+redis"
    faults = ("cut", "outage", "restart", "crash", "crowd", "flush", "redis_dies")

    def __init__(self, folder: Path, long: bool, postgres: PostgresServer) -> None:
        self.redis = RedisServer(folder / "redis")
        self.postgres = postgres
        self.deployment = Deployment(
            folder / "home", database_url=postgres.url, broker_url=self.redis.url
        )
        # Longer than leases last; and in the long run as long as an upgrade takes.
        self._lease = 1.3 * self.deployment.settings.lease_seconds
        self._redis_away = 60.0 if long else 5.0

    def cut(self) -> None:
        self.postgres.cut_connections()

    def outage(self) -> None:
        with self.postgres.nobody_let_in():
            time.sleep(self._lease)

    def restart(self) -> None:
        self.postgres.restart()

    def crash(self) -> None:
        self.postgres.crash()

    def crowd(self) -> None:
        with self.postgres.one_connection_at_a_time():
            time.sleep(self._lease)

    def flush(self) -> None:
        with self.redis.client() as client:
            client.flushall()

    def redis_dies(self) -> None:
        self.redis.kill()
        time.sleep(self._redis_away)
        self.redis.start()


@contextlib.contextmanager
def placed(name: str, folder: Path, long: bool = False) -> Iterator[Place]:
    """One of the places, by name; its servers end with it."""
    if name == Local.name:
        yield Local(folder)
        return
    with PostgresServer() as postgres:
        servers = Servers(folder, long, postgres)
        with servers.redis:
            yield servers


class Storm:
    """Workers that are started again when they were killed, and only then.

    Jobs are submitted one by one, so that no fault finds the workers idle.
    """

    def __init__(self, place: Place, model: Path, rng: random.Random) -> None:
        self.jobs: list[str] = []
        self.did: Counter[str] = Counter()
        self._differences: Counter[str] = Counter()
        self._place = place
        self._deployment = place.deployment
        self._model = model
        self._rng = rng
        self._database = Database(self._deployment.settings.database_url)
        self._store = Store(self._database)
        self._workers: list[RunningWorker] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for _ in range(WORKERS):
            self._start_worker()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._database.close()

    def run(self, kills: int) -> None:
        """So many kills, half of them of engines, and each fault of the place once.

        Then the end of the jobs and of the workers.
        """
        events = ["worker", "engine"] * (kills // 2) + list(self._place.faults)
        self._rng.shuffle(events)
        print(f"events: {events}")
        while events:
            at_once = [events.pop()]
            while events and len(at_once) < MOST_AT_ONCE and self._rng.random() < 0.5:
                at_once.append(events.pop())
            self._let_rows_finish(ROWS_BETWEEN)
            time.sleep(self._rng.uniform(0, 0.7))
            for event in at_once:
                self._do(event)
            self._check_that_sql_is_not_ahead()
        wait_for("the end of the jobs", self._ended, 240)
        wait_for("workers that know of signals", self._all_are_ready)
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        for worker in self._workers:
            assert worker.wait(60) == 0, worker.logged()

    def check(self, calm_answers: Sequence[dict[str, Any]]) -> None:
        """No row is lost, doubled or changed, and the books say so."""
        expected = list(calm_answers[:ROWS_OF_A_JOB])
        for job in self.jobs:
            folder = self._deployment.home / "storage" / self._store.job(job).folder
            found = pq.read_table(folder / "v1").to_pylist()
            self._differences.update(differences(expected, found))
            check_answers(expected, found)
            check_books(self._deployment, job, ROWS_OF_A_JOB)

    def figures(self) -> dict[str, Any]:
        """What happened, for the record. Only after `check`."""
        finished = sum(w.status.rows_completed for w in self._store.workers(all=True))
        rows = len(self.jobs) * ROWS_OF_A_JOB
        return {
            "kills_of_workers": self.did.pop("worker"),
            "kills_of_engines": self.did.pop("engine"),
            "other_faults": dict(self.did),
            "jobs": len(self.jobs),
            "rows": rows,
            **{f"rows_{what}": count for what, count in self._differences.items()},
            # As workers told in their last heartbeats.
            "share_of_finished_rows_computed_again": round(max(0, finished - rows) / rows, 4),
        }

    def _do(self, event: str) -> None:
        if event == "worker":
            self._kill_worker()
        elif event == "engine":
            wait_for("an engine", lambda: self._rng.choice(self._workers).kill_engine())
        else:
            getattr(self._place, event)()
        self.did[event] += 1

    def _kill_worker(self) -> None:
        victim = self._rng.choice(self._workers)
        engine = victim.engine()
        victim.kill()
        if engine is not None:
            engine.wait(60)  # its pipe is closed: it must end by itself
        self._workers.remove(victim)
        self._start_worker()

    def _check_that_sql_is_not_ahead(self) -> None:
        """What SQL names now is on disk, and whole."""
        for job in self.jobs[-2:]:
            record = self._store.job(job)
            folder = self._deployment.home / "storage" / record.folder
            for chunk in self._store.chunks(job):
                if chunk.part is not None:
                    assert pq.read_metadata(folder / chunk.part).num_rows == chunk.rows
            for window in self._store.windows(job):
                if window.merged is not None:
                    assert pq.read_metadata(folder / window.merged).num_rows == window.window.rows
            assert record.published_version is None or (folder / "v1" / "_SUCCESS").exists()

    def _start_worker(self) -> None:
        worker = self._deployment.worker(self._model, *ENGINE, "--concurrency", "2")
        self._workers.append(self._stack.enter_context(worker))

    def _let_rows_finish(self, number: int) -> None:
        before = self._finished()
        while len(self.jobs) * ROWS_OF_A_JOB - before < number + ROWS_IN_STORE:
            self._submit()

        def finished() -> bool:
            self._replace_those_without_engine()
            return self._finished() >= before + number

        wait_for("finished rows", finished)

    def _replace_those_without_engine(self) -> None:
        """Whoever keeps workers running starts one again that its engine's deaths ended."""
        for worker in [w for w in self._workers if not w.alive]:
            assert worker.wait() == ENGINE_LOST, f"it died by itself:\n{worker.logged()}"
            self.did["worker_started_again_after_its_engine_was_lost"] += 1
            self._workers.remove(worker)
            self._start_worker()

    def _submit(self) -> None:
        options = ("--chunk-rows", "12")
        self.jobs.append(self._deployment.submit(rows(ROWS_OF_A_JOB), self._model, *options))

    def _finished(self) -> int:
        return sum(self._store.progress(job).counts.rows for job in self.jobs)

    def _all_are_ready(self) -> bool:
        self._replace_those_without_engine()
        return all("ready for chunks" in worker.logged() for worker in self._workers)

    def _ended(self) -> bool:
        self._replace_those_without_engine()
        return all(self._store.job(job).state.terminal for job in self.jobs)
