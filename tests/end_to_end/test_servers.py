"""Redis and PostgreSQL that are away, cut off, emptied and killed, and workers that are, too."""

from __future__ import annotations

import contextlib
import random
import signal
import time

import pytest

from jobs.database import Database
from jobs.store import Store
from tests.support import postgres
from tests.support.crashes import ENGINE, check_answers, check_books, rows
from tests.support.deployment import Deployment, wait_for
from tests.support.redis_server import RedisServer, free_port

FAULTS = ["worker"] * 5 + ["engine"] * 5 + ["cut"] * 2 + ["outage", "flush", "redis_dies"]
ROWS_BETWEEN = 8  # rows that are finished between two faults
ROWS_OF_A_JOB = 100
ROWS_IN_STORE = 60  # so many are left at each fault, however quick the machine is


def test_a_job_ends_though_redis_never_comes(tmp_path, tiny_model):
    deployment = Deployment(tmp_path, broker_url=f"redis://127.0.0.1:{free_port()}/0")
    job = deployment.submit(
        [{"prompt": "x", "max_tokens": 5}] * 60, tiny_model, "--chunk-rows", "8"
    )
    with deployment.worker(tiny_model, *ENGINE) as worker:
        deployment.cli("wait", job)
        assert "chunks are taken from the database" in worker.logged()
        worker.signal(signal.SIGTERM)
        assert worker.wait(10) == 0, worker.logged()
    assert len(deployment.results(job)) == 60


@pytest.mark.timeout(600)
def test_no_fault_loses_doubles_or_changes_a_row(tmp_path, tiny_model, calm_answers):
    seed = time.time_ns()
    print(f"random seed {seed}")
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    database_url = postgres.create_database()
    try:
        deployment = Deployment(tmp_path / "home", database_url=database_url, broker_url=redis.url)
        with Storm(deployment, redis, tiny_model, random.Random(seed)) as storm:
            storm.run()
        for job in storm.jobs:
            check_answers(calm_answers[:ROWS_OF_A_JOB], deployment.results(job))
            check_books(deployment, job, ROWS_OF_A_JOB)
    finally:
        redis.kill()
        postgres.drop_database(database_url)


class Storm:
    """Three workers that are started again when they were killed, and only then.

    Jobs are submitted one by one, so that no fault finds the workers idle.
    """

    def __init__(self, deployment, redis, model, rng):
        self.deployment = deployment
        self.redis = redis
        self.jobs = []
        self.model = model
        self.rng = rng
        self.database = Database(deployment.settings.database_url)
        self.store = Store(self.database)
        self.workers = []
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        for _ in range(3):
            self.start_worker()
        return self

    def __exit__(self, *error):
        self._stack.close()
        self.database.close()

    def run(self):
        """All faults in a random order, then the end of the jobs and of the workers."""
        faults = self.rng.sample(FAULTS, len(FAULTS))
        print(f"faults: {faults}")
        for fault in faults:
            self.let_rows_finish(ROWS_BETWEEN)
            time.sleep(self.rng.uniform(0, 0.5))
            getattr(self, fault)()
        wait_for("the end of the jobs", self.ended, 240)
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait(60) == 0, worker.logged()

    def worker(self):
        victim = self.a_ready_worker()
        engine = victim.engine()
        victim.kill()
        if engine is not None:
            engine.wait(20)  # its pipe is closed: it must end by itself
        self.workers.remove(victim)
        self.start_worker()

    def engine(self):
        wait_for("an engine", lambda: self.a_ready_worker().kill_engine())

    def cut(self):
        postgres.cut_connections(self.deployment.settings.database_url)

    def outage(self):
        """Of PostgreSQL, and longer than leases last."""
        with postgres.nobody_let_in(self.deployment.settings.database_url):
            time.sleep(1.3 * self.deployment.settings.lease_seconds)

    def flush(self):
        with self.redis.client() as client:
            client.flushall()

    def redis_dies(self):
        self.redis.kill()
        self.let_rows_finish(2 * ROWS_BETWEEN)
        self.redis.start()

    def start_worker(self):
        worker = self.deployment.worker(self.model, *ENGINE, "--concurrency", "2")
        self.workers.append(self._stack.enter_context(worker))

    def a_ready_worker(self):
        def ready():
            return [w for w in self.workers if w.alive and "ready for chunks" in w.logged()]

        return self.rng.choice(wait_for("a worker that is ready", ready))

    def let_rows_finish(self, number):
        before = self.finished()
        while len(self.jobs) * ROWS_OF_A_JOB - before < number + ROWS_IN_STORE:
            self.submit()
        wait_for("finished rows", lambda: self.finished() >= before + number)
        for worker in self.workers:
            assert worker.alive, f"it died by itself:\n{worker.logged()}"

    def submit(self):
        options = ("--chunk-rows", "12")
        self.jobs.append(self.deployment.submit(rows(ROWS_OF_A_JOB), self.model, *options))

    def finished(self):
        return sum(self.store.progress(job).counts.rows for job in self.jobs)

    def ended(self):
        return all(self.store.job(job).state.terminal for job in self.jobs)
