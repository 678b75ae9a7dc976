"""`kill -9` at random moments: each row is in the output exactly once, and unchanged."""

from __future__ import annotations

import random
import time

import pytest

from jobs.database import Database
from jobs.store import Store
from tests.support.crashes import ENGINE, check_answers, check_books, computing, rows
from tests.support.deployment import Deployment, wait_for

KILLS_OF_EACH = 5


@pytest.mark.timeout(500)
def test_no_kill_loses_doubles_or_changes_a_row(tmp_path, tiny_model, calm_answers):
    seed = time.time_ns()
    print(f"random seed {seed}")
    stormy = Deployment(tmp_path)
    job = stormy.submit(rows(), tiny_model, "--chunk-rows", "32")
    kills = storm(stormy, job, tiny_model, random.Random(seed))
    assert kills == {"engine": KILLS_OF_EACH, "worker": KILLS_OF_EACH}
    check_answers(calm_answers, stormy.results(job))
    check_books(stormy, job)


def storm(deployment, job, model, rng):
    """Work on the job while engine and worker are killed in turn; returns the kills."""
    database = Database(deployment.settings.database_url)
    store = Store(database)
    kills = {"engine": 0, "worker": 0}
    try:
        while not store.job(job).state.terminal:
            with deployment.worker(model, *ENGINE, "--exit-when-done", job) as worker:
                while worker.alive and not store.job(job).state.terminal:
                    victim = min(kills, key=lambda name: kills[name])
                    if kills[victim] == KILLS_OF_EACH:
                        worker.wait(200)
                        continue
                    wait_for(
                        "rows in the engine",
                        lambda: computing(store, job) or not worker.alive,
                        60,
                    )
                    time.sleep(rng.uniform(0, 1.2))
                    assert not store.job(job).state.terminal, f"too quick for kills: {kills}"
                    if victim == "worker":
                        engine = worker.engine()
                        worker.kill()
                        if engine is not None:
                            engine.wait(10)  # its pipe is closed: it must end by itself
                        kills["worker"] += 1
                    elif worker.kill_engine():
                        kills["engine"] += 1
                        live = store.progress(job).counts
                        wait_for("the next engine", lambda: worker.engine() or not worker.alive)
                        assert store.progress(job).counts.rows >= live.rows
    finally:
        database.close()
    return kills
