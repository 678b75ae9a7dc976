"""Rows that kill the engine, in whole jobs: they alone are errors, whatever ran beside them."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.database import Database
from jobs.store import Store
from tests.support.deployment import BACKENDS, Deployment, RunningWorker, wait_for
from tests.support.poisoned import POISON, poison

ROWS = 200
KILLS = 50
APART = 10  # rows, between two kills
# Batches of two rows: each death costs a load of the model, and halves take more of them.
ENGINE = ("--num-blocks", "96", "--max-model-len", "512", "--max-num-seqs", "2", "--threads", "1")


def rows(number: int, poisoned: set[int] = frozenset(), tokens: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "custom_id": f"row-{i}",
            "prompt": f"Question {i}: " + (POISON if i in poisoned else "why?"),
            "max_tokens": tokens,
            "ignore_eos": True,
        }
        for i in range(number)
    ]


def errors(found: list[dict[str, Any]]) -> dict[int, str]:
    return {row["row_index"]: row["error"]["code"] for row in found if row["error"]}


@pytest.mark.parametrize(
    ("deployment", "poisoned"),
    [
        pytest.param(backend, poisoned, marks=marks)
        for backend, poisoned, marks in [
            (BACKENDS[0], {77}, ()),
            (BACKENDS[2], {20, 21, 150}, ()),  # two of one batch, and one of another chunk
            (BACKENDS[0], {20, 21, 150}, pytest.mark.chaos),
            (BACKENDS[2], {77}, pytest.mark.chaos),
        ]
    ],
    indirect=["deployment"],
)
def test_just_the_rows_that_kill_are_errors(
    deployment: Deployment, poisoned: set[int], tiny_model: Path
) -> None:
    deployment.env.update(poison())
    deployment.hold_leases(60)
    job = deployment.submit(rows(ROWS, poisoned), tiny_model, "--chunk-rows", "64")
    with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        assert worker.wait(240) == 0, worker.logged()
        assert worker.logged().count("while it computed this row alone") == len(poisoned)
    found = deployment.results(job)
    assert [row["row_index"] for row in found] == list(range(ROWS))
    assert errors(found) == dict.fromkeys(poisoned, "engine_crashed")
    for row in found:
        assert row["row_index"] in poisoned or row["completion_tokens"] == 4


@pytest.mark.chaos
def test_a_row_that_kills_workers_is_found_by_those_that_follow(
    deployment: Deployment, tiny_model: Path
) -> None:
    deployment.env.update(poison("host"))
    job = deployment.submit(rows(12, {5}), tiny_model, "--chunk-rows", "4")
    workers = 0
    while deployment.status(job)["state"] != "completed":
        assert workers < 20, "no end of it"
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
            worker.wait(120)
        workers += 1
    found = deployment.results(job)
    assert [row["row_index"] for row in found] == list(range(12))
    assert errors(found) == {5: "engine_crashed"}
    assert "3 workers died" in found[5]["error"]["message"]


@pytest.mark.chaos
@pytest.mark.timeout(3600)  # each kill costs a load of the model
def test_no_row_is_blamed_for_kills_from_outside(deployment: Deployment, tiny_model: Path) -> None:
    seed = time.time_ns()
    print(f"random seed {seed}")
    number, tokens = 6 * ROWS, 20
    job = deployment.submit(rows(number, tokens=tokens), tiny_model, "--chunk-rows", "32")
    with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        killed = kill_engines(deployment, worker, job, random.Random(seed))
        assert killed == KILLS, "the job was too short for so many kills"
        assert worker.wait(600) == 0, worker.logged()
    found = deployment.results(job)
    assert [row["row_index"] for row in found] == list(range(number))
    assert errors(found) == {}
    assert all(row["completion_tokens"] == tokens for row in found)


def kill_engines(deployment: Deployment, worker: RunningWorker, job: str, rng: Any) -> int:
    """Kill an engine again and again, each after a while; returns how many were killed.

    The whiles are random, and on the average as long as this machine needs for `APART` rows: a
    row that is hit three times in a row while it is alone cannot be told from one that kills.
    """
    database = Database(deployment.settings.database_url)
    store = Store(database)
    killed = 0
    try:
        while_between = APART * _seconds_a_row(store, job)
        print(f"a kill every {while_between:.2f} s that an engine runs")
        while killed < KILLS and not store.job(job).state.terminal:
            # A worker whose engines are killed again and again while they load gives up.
            wait_for("an engine with its model", lambda: _is_ready(worker), timeout=240)
            time.sleep(rng.expovariate(1 / while_between))
            killed += worker.kill_engine()
    finally:
        database.close()
    return killed


def _seconds_a_row(store: Store, job: str) -> float:
    """How long the worker needs for a row, once it is at it."""

    def answered() -> int:
        return store.progress(job).counts.completed

    before = wait_for("the first answers", answered)
    began = time.monotonic()
    after = wait_for("more answers", lambda: (n := answered()) >= before + 50 and n)
    return (time.monotonic() - began) / (after - before)


def _is_ready(worker: RunningWorker) -> bool:
    assert worker.alive, worker.logged()
    engine = worker.engine()
    return engine is not None and f"engine {engine.pid} ready" in worker.logged()
