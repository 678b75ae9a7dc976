"""Messages that come again and again: each chunk is leased once, and nothing computed twice."""

from __future__ import annotations

import pytest

from jobs.database import Database
from jobs.records import WakeUp
from jobs.store import Store
from jobs.wake import Sender

ENGINE = ("--num-blocks", "256", "--max-model-len", "256", "--threads", "1", "--concurrency", "2")
ROWS, CHUNK_ROWS, TOKENS = 48, 4, 40


@pytest.mark.parametrize("deployment", ["sqlite+redis", "postgresql+redis"], indirect=True)
def test_two_workers_that_hear_five_times_of_each_chunk(deployment, tiny_model):
    deployment.hold_leases(60)
    rows = [
        {"prompt": f"Question {i}?", "max_tokens": TOKENS, "ignore_eos": True} for i in range(ROWS)
    ]
    job = deployment.submit(rows, tiny_model, "--chunk-rows", str(CHUNK_ROWS))
    database = Database(deployment.settings.database_url)
    store = Store(database)
    try:
        wake_ups = [WakeUp(job, chunk.id, str(tiny_model), 0) for chunk in store.chunks(job)]
        with Sender(deployment.settings) as sender:
            for _ in range(4):
                sender.send(wake_ups)
            assert sender.waiting(str(tiny_model)) == 5 * ROWS // CHUNK_ROWS
        options = (tiny_model, *ENGINE, "--exit-when-done", job)
        with deployment.worker(*options) as one, deployment.worker(*options) as two:
            for worker in (one, two):
                assert worker.wait(120) == 0, worker.logged()
        assert {chunk.lease_epoch for chunk in store.chunks(job)} == {1}
        generated = [worker.status.generated_tokens for worker in store.workers(all=True)]
        assert sum(generated) == ROWS * TOKENS
        assert len(generated) == 2
    finally:
        database.close()
    assert [row["row_index"] for row in deployment.results(job)] == list(range(ROWS))
