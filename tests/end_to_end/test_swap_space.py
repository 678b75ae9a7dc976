"""`--swap-space` from the command line to the blocks: rows that make room are answered the same."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.deployment import Deployment, RunningWorker, wait_for

ENGINE = ("--max-model-len", "256", "--max-num-seqs", "8", "--threads", "1")
SHARED = "The same first words in front of every question, more than two blocks of them. "


def questions() -> list[dict[str, Any]]:
    """With a stop string that is never said: how long the answers get is not known before."""
    return [
        {"prompt": f"{SHARED}Question {i}?", "max_tokens": 70, "stop": ["#never#"],
         "ignore_eos": True}
        for i in range(16)
    ]  # fmt: skip


def answers(
    deployment: Deployment, model: Path, *options: str
) -> tuple[list[dict[str, Any]], dict[str, float], RunningWorker]:
    """The rows' answers, and the worker's metrics when all of them were there."""
    job = deployment.submit(questions(), model)
    with deployment.worker(model, *ENGINE, "--metrics-port", "0", *options) as worker:
        wait_for("the job", lambda: deployment.ended(job))
        found = re.search(r"metrics at (http://\S+)", worker.logged())
        assert found is not None
        with urllib.request.urlopen(found[1]) as page:
            text = page.read().decode()
    metrics = {n: float(v) for n, v in re.findall(r"^(pagemill_\w+) (\S+)$", text, re.MULTILINE)}
    return deployment.results(job), metrics, worker


def test_rows_that_make_room_have_the_same_answers(
    deployment: Deployment, tiny_model: Path
) -> None:
    roomy, metrics, _ = answers(deployment, tiny_model, "--num-blocks", "512")
    assert metrics["pagemill_preemptions_total"] == 0
    tight = ("--num-blocks", "30")
    swapped, metrics, worker = answers(deployment, tiny_model, *tight, "--swap-space", "0.01")
    assert [row["text"] for row in swapped] == [row["text"] for row in roomy]
    assert metrics["pagemill_swap_outs_total"] > 0
    assert metrics["pagemill_swap_ins_total"] == metrics["pagemill_swap_outs_total"]
    assert metrics["pagemill_swap_blocks_used"] == 0
    assert "swap space: up to 2,621 blocks, 0.01 GiB" in worker.logged()
    again, metrics, worker = answers(deployment, tiny_model, *tight, "--swap-space", "0")
    assert [row["text"] for row in again] == [row["text"] for row in roomy]
    assert metrics["pagemill_preemptions_total"] > 0
    assert metrics["pagemill_swap_blocks_capacity"] == metrics["pagemill_swap_outs_total"] == 0
    assert "swap space" not in worker.logged()


def test_a_size_that_cannot_be_is_refused_with_a_sentence(
    deployment: Deployment, tiny_model: Path
) -> None:
    with deployment.worker(tiny_model, *ENGINE, "--swap-space", "-1") as worker:
        assert worker.wait() == 3
    assert "swap_space is -1.0; it must be a number of GiB, 0 or more" in worker.logged()
