"""A PostgreSQL that hangs: it accepts everything and answers nothing."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support.crashes import ENGINE
from tests.support.deployment import Deployment, wait_for
from tests.support.postgres_server import PostgresServer


@pytest.mark.chaos  # for a worker waits a minute
@pytest.mark.parametrize("signals", [1, 2])
def test_it_does_not_keep_a_worker_that_was_told_to_leave(tmp_path, tiny_model, signals):
    rows = [{"prompt": f"Question {i}?", "max_tokens": 100, "ignore_eos": True} for i in range(40)]
    with PostgresServer() as postgres:
        deployment = Deployment(tmp_path / "home", database_url=postgres.url)
        job = deployment.submit(rows, tiny_model, "--chunk-rows", "40")
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
            wait_for("answers", lambda: deployment.completed(job))
            with postgres.frozen():
                worker.signal(signal.SIGTERM)
                wait_for("the first word", lambda: "draining" in worker.logged())
                if signals == 2:
                    worker.signal(signal.SIGTERM)
                began = time.monotonic()
                assert worker.wait(200) == 1
                assert time.monotonic() - began > 30
                assert "could not be handed back" in worker.logged()
                cut_off = "did not answer for the length of a lease" in worker.logged()
                assert cut_off == (signals == 1)
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as next_one:
            assert next_one.wait(200) == 0, next_one.logged()
            assert "finished rows adopted" in next_one.logged()
        assert [row["row_index"] for row in deployment.results(job)] == list(range(40))
