"""Sampled rows come again: from the job's seed and their place, after any crash, in any batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment, wait_for

ENGINE = ("--threads", "1", "--max-model-len", "256", "--deterministic")
ROWS = 24
SAME = ("row_index", "seed", "text", "finish_reason", "completion_tokens", "choices", "logprobs")


def rows() -> list[dict[str, Any]]:
    """Every third has a seed of its own, every fourth asks for three answers."""
    made: list[dict[str, Any]] = []
    for i in range(ROWS):
        row: dict[str, Any] = {
            "messages": [
                {"role": "system", "content": "Answer briefly, and be kind. " * 2},
                {"role": "user", "content": f"Question {i}: " + "why? " * (i % 9)},
            ],
            "temperature": (0.7, 1.0, 1.5)[i % 3],
            "max_tokens": 16 + i % 16,
            "ignore_eos": True,
            "logprobs": 2,
        }
        if i % 3 == 0:
            row["seed"] = i
        if i % 4 == 0:
            row["n"] = 3
        made.append(row)
    return made


def answered(deployment: Deployment, job: str) -> list[dict[str, Any]]:
    found = deployment.results(job)
    assert [row["row_index"] for row in found] == list(range(ROWS))
    assert all(row["error"] is None for row in found)
    return [{name: row[name] for name in SAME} for row in found]


@pytest.mark.timeout(1800)
def test_after_a_crash_and_in_any_batch(deployment: Deployment, tiny_model: Path) -> None:
    calm = deployment.submit(rows(), tiny_model, "--seed", "7", "--chunk-rows", "24")
    with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", calm) as worker:
        assert worker.wait(500) == 0, worker.logged()
    expected = answered(deployment, calm)

    job = deployment.submit(rows(), tiny_model, "--seed", "7", "--chunk-rows", "6")
    tight = (*ENGINE, "--num-blocks", "24", "--block-size", "8")  # which preempts
    with deployment.worker(tiny_model, *tight, "--max-num-seqs", "3") as first:
        wait_for("finished rows", lambda: deployment.completed(job) >= 3)
        first.kill_engine()
        wait_for("more", lambda: deployment.completed(job) >= 6)
        first.kill()
    assert deployment.completed(job) < ROWS
    other = ("--no-prefix-cache", "--max-num-batched-tokens", "40", "--exit-when-done", job)
    with deployment.worker(tiny_model, *ENGINE, *other) as second:
        assert second.wait(500) == 0, second.logged()
    assert answered(deployment, job) == expected

    assert [row["seed"] for row in expected if row["row_index"] % 3 == 0] == list(range(0, ROWS, 3))
    assert len({row["seed"] for row in expected}) == ROWS
    for row in expected[::4]:  # each sample has random numbers of its own
        assert len({choice["text"] for choice in row["choices"]}) == 3
