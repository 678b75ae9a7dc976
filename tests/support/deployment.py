"""A whole deployment in a temporary folder, driven through the command line as users do."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from jobs.database import Database, upgrade
from jobs.settings import MEMORY_BROKER, Settings
from jobs.store import Store
from tests.support import postgres, redis_server
from tests.support.command_line import run_here

TIMEOUT = 240.0

BACKENDS = ("sqlite+memory", "sqlite+redis", "postgresql+redis")


@contextmanager
def deployed(home: Path, backend: str) -> Iterator[Deployment]:
    """A deployment on one of `BACKENDS`; what it has on shared servers is removed at the end."""
    database, _, broker = backend.partition("+")
    database_url = postgres.create_database() if database == "postgresql" else None
    broker_url = redis_server.shared_url() if broker == "redis" else MEMORY_BROKER
    try:
        deployment = Deployment(home, database_url=database_url, broker_url=broker_url)
        yield deployment
        if broker == "redis":
            redis_server.remove_keys(broker_url, deployment.settings.queue)
    finally:
        if database_url is not None:
            postgres.drop_database(database_url)


class Deployment:
    """Database, storage and workers of one test.

    Periods are short, so that lost leases are noticed in seconds.

    Args:
        database_url: of an empty database; an SQLite file of its own if it is not given.
        broker_url: without one, no message leaves a process.
    """

    def __init__(
        self, home: Path, *, database_url: str | None = None, broker_url: str = MEMORY_BROKER
    ) -> None:
        self.home = home
        self.settings = Settings(
            database_url=database_url or f"sqlite:///{home / 'pagemill.db'}",
            broker_url=broker_url,
            storage_url=str(home / "storage"),
            queue=f"test-{uuid.uuid4().hex[:12]}",
            lease_seconds=3.0,
            sweep_seconds=1.0,
            spool_seconds=0.3,
            heartbeat_seconds=0.3,
        )
        self.env = {
            **os.environ,
            **self.settings.to_env(),
            "PAGEMILL_HOME": str(home),
            "PAGEMILL_CHECK_INVARIANTS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "default",
        }
        home.mkdir(parents=True, exist_ok=True)
        upgrade(self.settings.database_url)

    def hold_leases(self, seconds: float) -> None:
        """How long the leases of workers last that start from now on.

        A machine that is busy enough keeps any worker from its heartbeats for the usual time.
        """
        self.settings = dataclasses.replace(self.settings, lease_seconds=seconds)
        self.env["PAGEMILL_LEASE_SECONDS"] = str(seconds)

    def cli(
        self, *arguments: str, expect: int | None = 0, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `pagemill …`; fails the test if it ends with another status than expected."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "jobs", *arguments],
            env=self.env, cwd=self.home, input=stdin, capture_output=True, timeout=TIMEOUT,
        )  # fmt: skip
        result = subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )
        if expect is not None:
            assert result.returncode == expect, (
                f"pagemill {' '.join(arguments)} ended with {result.returncode}\n"
                f"{result.stdout}\n{result.stderr}"
            )
        return result

    def submit(self, rows: list[dict[str, Any]], model: Path, *options: str) -> str:
        """Submit rows as JSONL; returns the job's id."""
        path = self.home / f"input-{time.monotonic_ns()}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self.cli("submit", str(path), "--model", str(model), *options).stdout.strip()

    def status(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._look("status", job_id, "--json"))
        return found

    def completed(self, job_id: str) -> int:
        """Rows answered so far; asks the database itself, which is quicker than a command."""
        with self._store() as store:
            return store.progress(job_id).counts.completed

    def ended(self, job_id: str) -> bool:
        """Whether a job is in its last state; asks the database itself, too."""
        with self._store() as store:
            return store.job(job_id).state.terminal

    @contextmanager
    def _store(self) -> Iterator[Store]:
        database = Database(self.settings.database_url)
        try:
            yield Store(database)
        finally:
            database.close()

    def results(self, job_id: str, *options: str) -> list[dict[str, Any]]:
        """The rows of a job, through `results --format jsonl`."""
        found = self._look("results", job_id, "--format", "jsonl", "-o", "-", *options)
        return [json.loads(line) for line in found.splitlines()]

    def _look(self, *arguments: str) -> str:
        """What a command prints that only looks; run in this process, which is there already."""
        with mock.patch.dict(os.environ, self.env, clear=True):
            return run_here(*arguments)[0]

    @contextmanager
    def worker(self, model: Path, *options: str) -> Iterator[RunningWorker]:
        """A worker process; it is killed at the end if it still runs, and so is its engine.

        An engine ends by itself without its worker, but not one that a test has stopped.
        """
        running = RunningWorker(self, model, options)
        try:
            yield running
        finally:
            engine = running.engine()
            running.kill()
            if engine is not None:
                with suppress(psutil.NoSuchProcess):
                    engine.kill()


class RunningWorker:
    """A worker process and its engine."""

    def __init__(self, deployment: Deployment, model: Path, options: tuple[str, ...]) -> None:
        self.log = deployment.home / f"worker-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "worker", "--model", str(model), *options],
                env=deployment.env, cwd=deployment.home, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def engine(self) -> psutil.Process | None:
        """The engine process, if there is one at the moment."""
        try:
            for child in psutil.Process(self.process.pid).children():
                if "engine" in child.cmdline():
                    return child
        except psutil.NoSuchProcess:
            pass
        return None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill_engine(self) -> bool:
        """`kill -9` of the engine; false if there is none just now."""
        engine = self.engine()
        if engine is None:
            return False
        engine.kill()
        return True

    def kill(self) -> None:
        """`kill -9` of the worker; its engine must then end by itself."""
        if self.alive:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait(self, timeout: float = 60) -> int:
        return self.process.wait(timeout)

    def logged(self) -> str:
        return self.log.read_text(errors="replace")


def wait_for(what: str, condition: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """Poll until the condition gives something true; returns that."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain for {what}"
        time.sleep(0.05)
    return value
