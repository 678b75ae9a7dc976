"""Rows that a real worker cannot compute: each is its own error, and others are answered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.deployment import Deployment, RunningWorker
from tests.support.tiny_model import build_tiny_model, byte_tokenizer

# 20 blocks of 16 are 320 tokens, fewer than the longest sequence of 400.
ENGINE = ("--num-blocks", "20", "--max-model-len", "400", "--max-num-seqs", "8", "--threads", "1")
POISON = "Z"
SHARED = "The same first words in front of every question, more than two blocks of them. "


@pytest.fixture(scope="module")
def poisoned_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that gives NaN for each prompt with a `POISON`, which it never says itself."""
    folder = build_tiny_model(tmp_path_factory.mktemp("poisoned"))
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    token = byte_tokenizer().convert_tokens_to_ids(POISON)
    tensors["model.embed_tokens.weight"][token] = torch.nan
    tensors["lm_head.weight"][token] = 0
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def patch_engine(deployment: Deployment, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Run the steps of every engine by `body`, in the place of Runner.execute(self, batch)."""
    patch = deployment.home / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'engine' in sys.orig_argv:\n"
        "    import time, torch\n"
        "    from engine.runner import Runner\n"
        "    execute = Runner.execute\n"
        f"    def patched(self, batch):\n{body}"
        "    Runner.execute = patched\n"
    )
    monkeypatch.setitem(deployment.env, "PYTHONPATH", os.fspath(patch))


def questions(count: int, tokens: int = 12) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{SHARED}Question {i}?", "max_tokens": tokens, "ignore_eos": True}
        for i in range(count)
    ]


def answers(
    deployment: Deployment, rows: list[dict[str, Any]], model: Path, *options: str
) -> tuple[list[dict[str, Any]], RunningWorker]:
    """What one worker makes of the rows, all of which are in its engine at once."""
    job = deployment.submit(rows, model, *options)
    with deployment.worker(model, *ENGINE, "--exit-when-done", job) as worker:
        assert worker.wait(120) == 0, worker.logged()
    return deployment.results(job), worker


@pytest.fixture(scope="module")
def calm(poisoned_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What sound questions are answered."""
    found, _ = answers(Deployment(tmp_path_factory.mktemp("calm")), questions(12), poisoned_model)
    assert all(row["error"] is None for row in found)
    return [row["text"] for row in found]


def test_a_row_that_fails_fails_alone(
    deployment: Deployment, poisoned_model: Path, calm: list[str]
) -> None:
    sound = questions(12)
    bad: dict[int, tuple[dict[str, Any], str]] = {
        # NaN in the blocks that others share, too, and in the middle of a batch.
        2: ({"prompt": f"{SHARED}{POISON}uestion 2?"}, "nan_logits"),
        3: ({"prompt": POISON, "n": 3, "temperature": 1.0}, "nan_logits"),
        6: ({"prompt": "x" * 401}, "prompt_too_long"),
        7: ({"prompt": "x" * 350}, "kv_cache_too_small"),
        8: ({"prompt": "x" * 200, "max_tokens": 200}, "kv_cache_too_small"),
        11: ({"prompt": f"{SHARED}Question 11?{POISON}"}, "nan_logits"),
    }
    rows = [row | bad[i][0] if i in bad else row for i, row in enumerate(sound)]
    found, worker = answers(deployment, rows, poisoned_model)
    assert [row["row_index"] for row in found] == list(range(12))
    for i, row in enumerate(found):
        if i in bad:
            assert (row["text"], row["finish_reason"]) == (None, "error")
            assert (row["error"]["code"], row["error"]["line"]) == (bad[i][1], i + 1)
        else:
            assert (row["error"], row["text"]) == (None, calm[i])
    assert "died" not in worker.logged()


def test_memory_that_runs_out_costs_no_row(
    deployment: Deployment, poisoned_model: Path, calm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is ours: an engine in which more than 5 tokens at once are too many."""
    patch_engine(
        deployment, monkeypatch,
        "        tokens = execute(self, batch)\n"
        "        if batch.num_tokens > 5:\n"
        "            raise torch.OutOfMemoryError('CUDA out of memory.')\n"
        "        return tokens\n",
    )  # fmt: skip
    found, worker = answers(deployment, questions(12), poisoned_model)
    assert [row["text"] for row in found] == calm
    assert all(row["error"] is None for row in found)
    assert "ran out of memory" in worker.logged()
    assert "died" not in worker.logged()


def test_a_row_past_its_time_limit_is_an_error_and_the_others_are_answered(
    deployment: Deployment, poisoned_model: Path, calm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that take 20 ms: the slow row wants 6 s, and the others a quarter of one."""
    patch_engine(
        deployment, monkeypatch, "        time.sleep(0.02)\n        return execute(self, batch)\n"
    )
    rows = questions(12)
    rows[5]["max_tokens"] = 300
    rows[5]["prompt"] = "slow"
    found, worker = answers(deployment, rows, poisoned_model, "--row-timeout", "4")
    slow = found.pop(5)
    assert (slow["error"]["code"], slow["error"]["line"], slow["text"]) == ("row_timeout", 6, None)
    assert 0 < slow["completion_tokens"] < 300
    assert all(row["error"] is None for row in found)
    assert [row["text"] for row in found] == calm[:5] + calm[6:]
    assert "died" not in worker.logged()
