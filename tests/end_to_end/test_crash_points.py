"""`kill -9` of real workers and of real submits, at named points."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from jobs.database import Database
from jobs.finalize import drive
from jobs.storage import Storage
from jobs.store import Store
from tests.support.crash_points import OF_A_JOB, OF_A_SUBMIT, arm_commands, workers_die_at
from tests.support.crashes import ENGINE, check_answers, check_books, rows
from tests.support.deployment import BACKENDS, Deployment
from tests.support.on_disk import check_clean, check_never_ahead, published

ROWS = 48
ALWAYS = {  # in `make test`; the others are tried there with a player in the place of a worker
    ("sqlite+memory", "the state is not changed yet"),
    ("postgresql+redis", "a chunk is committed"),
}
MATRIX = [
    pytest.param(backend, point, marks=[] if (backend, point) in ALWAYS else [pytest.mark.chaos])
    for backend in (BACKENDS[0], BACKENDS[-1])
    for point in OF_A_JOB
]


@pytest.mark.parametrize(("deployment", "point"), MATRIX, indirect=["deployment"])
def test_a_worker_that_dies_there(
    deployment: Deployment, tiny_model: Path, calm_answers: list[dict[str, Any]], point: str
) -> None:
    job = deployment.submit(rows(ROWS), tiny_model, "--chunk-rows", "16")
    # A chunk takes half a second: its segments have to be written well within that.
    deployment.env["PAGEMILL_SPOOL_SECONDS"] = "0.02"
    with workers_die_at(point, deployment), deployment.worker(tiny_model, *ENGINE) as worker:
        assert worker.wait(120) == -signal.SIGKILL, worker.logged()
    database = Database(deployment.settings.database_url)
    try:
        store = Store(database, lease_seconds=deployment.settings.lease_seconds)
        storage = Storage(deployment.settings.storage_url)
        check_never_ahead(store, storage, job)
        before = published(storage, job)
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
            assert worker.wait(120) == 0, worker.logged()
        drive(store, storage, "test")
        check_answers(calm_answers[:ROWS], deployment.results(job))
        check_books(deployment, job, ROWS)
        check_never_ahead(store, storage, job)
        check_clean(store, storage, job)
        assert before.items() <= published(storage, job).items()
    finally:
        database.close()


@pytest.mark.parametrize("point", OF_A_SUBMIT)
def test_a_submit_that_dies_there(deployment: Deployment, tmp_path: Path, point: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{i}"}) + "\n" for i in range(300)))
    submit = ("submit", str(path), "--model", "m", "--idempotency-key", "k")
    armed = arm_commands(point, "jobs", tmp_path / "armed")
    deployment.env.update(armed)
    deployment.cli(*submit, expect=-9)
    for name in armed:
        del deployment.env[name]

    listed = [job["id"] for job in json.loads(deployment.cli("list", "--json").stdout)]
    assert len(listed) == (point == "the job is in SQL")
    again = deployment.cli(*submit).stdout.strip()
    assert listed in ([], [again])
    database = Database(deployment.settings.database_url)
    try:
        check_never_ahead(Store(database), Storage(deployment.settings.storage_url), again)
    finally:
        database.close()
