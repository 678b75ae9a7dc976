"""Celery's own beat, as a process, with the scheduler that ticks in SQL."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.database import Database
from jobs.records.evaluations import Overlap
from jobs.store import Store
from tests.support.deployment import Deployment, deployed, wait_for
from tests.support.postgres import nobody_let_in
from tests.support.schedules import evaluation_rows, make_due, new_schedule

# What somebody has who runs Celery already.
THEIRS = """
from celery import Celery

app = Celery("theirs", broker="memory://")
app.conf.beat_schedule = {"mine": {"task": "their.task", "schedule": 0.2}}
"""


@contextmanager
def celery_beat(deployment: Deployment, *arguments: str) -> Iterator[Path]:
    """The process, and its log."""
    log = deployment.home / "celery-beat.log"
    command = [sys.executable, "-m", "celery", *arguments, "--loglevel", "debug"]
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, env=deployment.env, cwd=deployment.home, stdout=out, stderr=out
        )
    try:
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("backend", ["sqlite+memory", "postgresql+redis"])
def test_it_ticks(tmp_path: Path, backend: str) -> None:
    """What is due at its start, and what becomes due while it runs."""
    with deployed(tmp_path / "home", backend) as deployment:
        database = Database(deployment.settings.database_url)
        store = Store(database)
        due, soon = (store.add_schedule(new_schedule(name)) for name in ("due", "soon"))
        make_due(database, due, 5)
        make_due(database, soon, -3)
        with celery_beat(deployment, "-A", "worker.celery_beat", "beat") as log:
            wait_for("both", lambda: len(evaluation_rows(database)) == 2, timeout=120)
            assert "worker.celery_beat.SqlScheduler" in log.read_text()
        assert {row.name for row in evaluation_rows(database)} == {"due", "soon"}
        database.close()


def test_it_runs_what_another_app_has_besides(tmp_path: Path) -> None:
    with deployed(tmp_path / "home", "sqlite+memory") as deployment:
        (deployment.home / "theirs.py").write_text(THEIRS)
        database = Database(deployment.settings.database_url)
        store = Store(database)
        make_due(database, store.add_schedule(new_schedule()), 5)
        scheduler = ("--scheduler", "worker.celery_beat:SqlScheduler")
        with celery_beat(deployment, "-A", "theirs", "beat", *scheduler) as log:
            wait_for("ours", lambda: bool(evaluation_rows(database)), timeout=120)
            wait_for("theirs", lambda: "Sending due task mine" in log.read_text(), timeout=60)
        database.close()


def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with deployed(tmp_path / "home", "postgresql+redis") as deployment:
        url = deployment.settings.database_url
        database = Database(url)
        store = Store(database)
        schedule = store.add_schedule(new_schedule(overlap=Overlap.ALLOW))
        make_due(database, schedule, 5)
        with celery_beat(deployment, "-A", "worker.celery_beat", "beat") as log:
            wait_for("a tick", lambda: len(evaluation_rows(database)) == 1, timeout=120)
            with nobody_let_in(url):
                away = "schedules: DatabaseUnavailable: "
                wait_for("the outage", lambda: away in log.read_text(), timeout=120)
            make_due(database, schedule, 5)
            wait_for("the next tick", lambda: len(evaluation_rows(database)) == 2, timeout=120)
        database.close()


def test_a_database_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "home")
    deployment.env["PAGEMILL_DATABASE_URL"] = f"sqlite:///{tmp_path}/none.db"
    command = [sys.executable, "-m", "celery", "-A", "worker.celery_beat", "beat"]
    done = subprocess.run(
        command, env=deployment.env, cwd=tmp_path, capture_output=True, timeout=120
    )
    said = done.stderr.decode()
    assert done.returncode == 1
    assert "Error: there is no database at" in said
    assert "Traceback" not in said
