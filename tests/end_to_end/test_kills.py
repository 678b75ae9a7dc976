"""`kill -9` at random moments: each row is in the output exactly once, and unchanged."""

from __future__ import annotations

import random
import time

import pyarrow.parquet as pq
import pytest

from jobs.database import Database
from jobs.states import ChunkState
from jobs.store import Store
from tests.support.deployment import Deployment, wait_for

ROWS = 400
KILLS_OF_EACH = 5
ENGINE = ("--num-blocks", "96", "--max-model-len", "512", "--max-num-seqs", "8", "--threads", "1")


def rows():
    """Rows of two system prompts and mixed length; greedy, so that they can be compared."""
    return [
        {
            "custom_id": f"row-{i}",
            "messages": [
                {"role": "system", "content": ("Be brief. ", "Be kind, and exact. ")[i % 2] * 6},
                {"role": "user", "content": f"Question {i}: " + "why? " * (i % 7)},
            ],
            "max_tokens": 40 + i % 40,
            "ignore_eos": True,
        }
        for i in range(ROWS)
    ]


@pytest.mark.timeout(500)
def test_no_kill_loses_doubles_or_changes_a_row(tmp_path, tiny_model):
    calm = Deployment(tmp_path / "calm")
    job = calm.submit(rows(), tiny_model, "--chunk-rows", "32")
    with calm.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        assert worker.wait(200) == 0, worker.logged()
    expected = calm.results(job)
    assert [row["row_index"] for row in expected] == list(range(ROWS))
    assert all(row["error"] is None for row in expected)

    seed = time.time_ns()
    print(f"random seed {seed}")
    stormy = Deployment(tmp_path / "stormy")
    job = stormy.submit(rows(), tiny_model, "--chunk-rows", "32")
    kills = storm(stormy, job, tiny_model, random.Random(seed))
    assert kills == {"engine": KILLS_OF_EACH, "worker": KILLS_OF_EACH}

    found = stormy.results(job)
    assert [row["row_index"] for row in found] == list(range(ROWS))
    keys = ("custom_id", "text", "finish_reason", "prompt_tokens", "completion_tokens", "error")
    for one, other in zip(expected, found, strict=True):
        assert {k: one[k] for k in keys} == {k: other[k] for k in keys}
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


def computing(store, job):
    """Whether some chunk that is leased has tokens that are not committed."""
    return any(
        c.state is ChunkState.RUNNING and c.counts.completion_tokens > 0 for c in store.chunks(job)
    )


def check_books(deployment, job):
    """SQL and files agree: one part a chunk, each row in one part, sums right."""
    database = Database(deployment.settings.database_url)
    try:
        store = Store(database)
        record = store.job(job)
        assert record.counts.completed == ROWS
        assert record.counts.failed == record.counts.cancelled == record.counts.expired == 0
        assert record.chunks_left == 0
        chunks = store.chunks(job)
        assert all(c.state is ChunkState.DONE for c in chunks)
        assert sum(c.rows for c in chunks) == ROWS
        assert len({c.part for c in chunks}) == len(chunks)
    finally:
        database.close()
    published = deployment.home / "storage" / record.folder / "v1"
    table = pq.read_table(published)
    assert sorted(table["row_index"].to_pylist()) == list(range(ROWS))
    assert sum(table["completion_tokens"].to_pylist()) == record.counts.completion_tokens
