"""The examples of docs/polling.md, and a deployment that is polled as they do it."""

from __future__ import annotations

import os
import re
import select
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import psycopg.rows
from sqlalchemy import make_url, update

from jobs.database import Database, upgrade
from jobs.finalize import drive
from jobs.records import Counts, DeviceTime, WorkerStatus
from jobs.records.evaluations import Interval, ScoreRecord
from jobs.sqltypes import database_now
from jobs.storage import Storage
from jobs.store import Store
from jobs.tables import jobs, workers
from tests.support.child import child
from tests.support.job_store import new_job
from tests.support.made_evaluations import MadeEvaluations
from tests.support.played_job import MODEL, PlayedJob, Window, add_job
from tests.support.postgres import client_folder

PAGE = (Path(__file__).parents[2] / "docs" / "polling.md").read_text("utf-8")
JOB_ID = "job_2al4kchm7tzno6oug4d6"  # of the page
READER = "pagemill_reader"  # likewise
KINDS = ("sqlite", "postgresql")
MISSPELT = "the-modle"
OWN = (JOB_ID, "job_done", "job_stuck", "job_failed")
ALIVE, LOST = "gpu-7:4711:0f", "gpu-8:4711:0f"
BUSY = WorkerStatus(
    "ready", device="cuda:0", dtype="bfloat16", chunks_held=1, running=3, waiting=2,
    blocks_used=30, blocks_total=120, prompt_tokens=200, cached_tokens=150,
    tokens_per_second=64.0,
)  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A block of code.

    Attributes:
        about: the nearest question before it.
        kind: the database that it is for; None for both.
    """

    language: str
    about: str
    kind: str | None
    code: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS if self.kind is None else (self.kind,)


def examples() -> list[Example]:
    found = []
    about = ""
    for match in re.finditer(
        r"^```(\w+) ?(\w*)\n(.*?)^```$|^(\w[^\n]*\?[^\n]*)$", PAGE, re.M | re.S
    ):
        language, kind, code, question = match.groups()
        if question is not None:
            about = question.partition("?")[0]
        else:
            found.append(Example(language, about, kind or None, code))
    return found


(ADMIN,) = (example.code for example in examples() if example.kind == "admin")
(PASSWORD,) = re.findall(r"PASSWORD '(.*)'", ADMIN)


@dataclass(frozen=True)
class Polled:
    """A deployment to poll, and what its pollers know of it."""

    kind: str
    database: Database
    storage: Storage
    env: dict[str, str]
    place: Path

    @property
    def store(self) -> Store:
        return Store(self.database)

    def refresh(self) -> None:
        """Let all be as old as when it was made; jobs of earlier tests are of another model."""
        self.store.report_worker(ALIVE, BUSY)
        changes = (
            update(workers).where(workers.c.id == LOST).values(seen_at=database_now(-100.0)),
            update(jobs).where(jobs.c.id == JOB_ID).values(started_at=database_now(-1000.0)),
            update(jobs).where(jobs.c.id.not_in(OWN)).values(model="another"),
        )
        with self.database.begin() as connection:
            for change in changes:
                connection.execute(change)

    def query(self, sql: str) -> list[dict[str, Any]]:
        if self.kind == "sqlite":
            uri = f"{(self.place / 'pagemill.db').as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as lite:
                lite.row_factory = sqlite3.Row
                return [dict(row) for row in lite.execute(sql)]
        with psycopg.connect(self.env["POLL_URL"], row_factory=psycopg.rows.dict_row) as pg:
            return pg.execute(sql.encode()).fetchall()

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.place, env=self.env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def watch(self, failing: set[int], *command: str, patience: float = 60) -> list[str]:
        """What a program prints that watches a job, half done at first, to its end.

        The job goes on when something was printed, or when the patience (seconds) is over. Its
        id is the last argument of the program, and JOB.
        """
        job = add_job(self.store, self.storage, [Window([[0, 1], [3, 2]])])
        job.failing = failing
        with self.database.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job.id).values(priority=1))
        self._finish_chunk(job)
        with child(
            [*command, job.id], cwd=self.place, env=self.env | {"JOB": job.id},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            select.select([process.stdout], [], [], patience)
            self._finish_chunk(job)
            drive(self.store, self.storage, "test", job.id)
            printed, errors = process.communicate(timeout=120)
        assert process.returncode == 0, f"{command[-1]}\n{printed}\n{errors}"
        return printed.splitlines()

    def _finish_chunk(self, job: PlayedJob) -> None:
        lease = job.claim()
        assert lease.job_id == job.id
        assert job.finish(lease)


@contextmanager
def deployed(kind: str, url: str, place: Path) -> Iterator[Polled]:
    """A deployment in a new database, with a job of each fate.

    On PostgreSQL pollers are the role that the page makes.
    """
    upgrade(url)
    database = Database(url)
    storage = Storage(str(place / "storage"))
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PAGEMILL_HOME": str(place),
        "PAGEMILL_DATABASE_URL": url,
        "PAGEMILL_STORAGE_URL": str(storage.root),
    }
    if kind == "postgresql":
        env["PATH"] = f"{client_folder()}{os.pathsep}{env['PATH']}"
        env["POLL_URL"] = make_url(url).set(
            drivername="postgresql", username=READER, password=PASSWORD
        ).render_as_string(hide_password=False)  # fmt: skip
    polled = Polled(kind, database, storage, env, place)
    if kind == "postgresql":
        owner = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        polled.run("psql", owner, "--quiet", "--set=ON_ERROR_STOP=1", "--command", ADMIN)
    try:
        populate(database, storage)
        yield polled
    finally:
        database.close()


def populate(database: Database, storage: Storage) -> None:
    """A job of each fate, a worker, one that was lost, and an evaluation."""
    store = Store(database)
    store.register_worker(ALIVE, MODEL, 4, "0.1.0", WorkerStatus("starting"))
    store.register_worker(LOST, MISSPELT, 4, "0.1.0", WorkerStatus("starting"))

    done = add_job(store, storage, [Window([[0, 1]])], "job_done")
    done.finish_all()
    drive(store, storage, "test")
    store.insert_job(new_job((1,), id="job_stuck", model=MISSPELT))
    store.insert_job(new_job((1,), id="job_failed", model="none"))
    store.fail_job("job_failed", "model_unavailable", "there is no such model")

    MadeEvaluations(database, storage).add(
        scores=[ScoreRecord("exact", "", "", 98, 2, 0.9, 0.8, 0.95, Interval.WILSON)]
    )

    job = add_job(store, storage, [Window([[1, 0], [2, 3], [5, 4]], rejected=[6, 7])], JOB_ID)
    job.failing = {1}
    job.device = DeviceTime(1800.0, 900.0)
    job.finish(job.claim())
    running = job.claim(ALIVE)
    store.renew(running.owner, {running.chunk_id: (running.epoch, Counts(1, completion_tokens=7))})
