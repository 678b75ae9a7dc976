"""Jobs that score and embed: killed in between, each row comes once, and is what the model says."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.support import prompt_references as reference
from tests.support.crash_points import workers_die_at
from tests.support.deployment import Deployment

ENGINE = ("--num-blocks", "256", "--max-model-len", "512", "--threads", "1")
# A row or two at a time: others are on the way when the worker is killed.
SLOW = (*ENGINE, "--max-num-seqs", "2", "--max-num-batched-tokens", "64")
ROWS = 150


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)


def tokens(model_folder: Path, text: str) -> list[int]:
    from transformers import AutoTokenizer

    ids: list[int] = AutoTokenizer.from_pretrained(model_folder)(text)["input_ids"]
    return ids


def killed_in_between(
    deployment: Deployment, model: Path, rows: list[dict[str, Any]], *options: str
) -> tuple[str, list[dict[str, Any]]]:
    """Answer rows with a worker that is killed and one that goes on; the job and its rows."""
    job = deployment.submit(rows, model, "--chunk-rows", "30", *options)
    with (
        workers_die_at("a chunk is committed", deployment),
        deployment.worker(model, *SLOW) as first,
    ):
        assert first.wait(200) == -signal.SIGKILL, first.logged()
    assert deployment.status(job)["state"] == "in_progress"
    with deployment.worker(model, *ENGINE, "--exit-when-done", job) as second:
        assert second.wait(200) == 0, second.logged()
    status = deployment.status(job)
    assert status["state"] == "completed"
    found = deployment.results(job)
    assert [row["row_index"] for row in found] == list(range(len(rows)))
    assert status["rows"]["completed"] == sum(row["error"] is None for row in found)
    assert status["tokens"]["prompt"] == sum(row["prompt_tokens"] for row in found)
    return job, found


def test_a_score_job(deployment: Deployment, tiny_model: Path, model: Any) -> None:
    rows: list[dict[str, Any]] = [
        {
            "custom_id": f"row-{i}",
            "prompt": f"{'All questions are about the library. ' * 3}Question {i}? Answer: ",
            "choices": ["at nine", "at ten o'clock", "never", "?"],
            "label": i % 4,
        }
        for i in range(ROWS)
    ]
    rows[3] = {"custom_id": "bad", "prompt": "no choices"}
    rows[5] = {"custom_id": "long", "prompt": "x" * 600, "choices": ["y"]}
    job, found = killed_in_between(deployment, tiny_model, rows, "--kind", "score")
    errors = {r["custom_id"]: r["error"]["code"] for r in found if r["error"]}
    assert errors == {"bad": "missing_choices", "long": "prompt_too_long"}
    for i in (0, 77, ROWS - 1):
        row, given = found[i], rows[i]
        assert row["input"] == {"label": i % 4}
        context = tokens(tiny_model, given["prompt"].rstrip())
        logprobs = []
        for choice, score in zip(given["choices"], row["scores"], strict=True):
            whole = tokens(tiny_model, given["prompt"] + choice)
            values, is_greedy = reference.continuation(model, whole, len(context))
            assert score["token_logprobs"] == pytest.approx(values.tolist(), abs=1e-4)
            assert score["logprob"] == pytest.approx(values.sum().item(), abs=1e-3)
            assert (score["tokens"], score["is_greedy"]) == (len(values), is_greedy)
            logprobs.append(score["logprob"])
        sizes = [len(choice.encode()) for choice in given["choices"]]
        assert row["best"] == logprobs.index(max(logprobs))
        by_byte = [value / size for value, size in zip(logprobs, sizes, strict=True)]
        assert row["best_normalized"] == by_byte.index(max(by_byte))
        assert row["completion_tokens"] == 0
        assert row["prompt_tokens"] == len(context) + sum(s["tokens"] for s in row["scores"])
    assert sum(row["cached_tokens"] for row in found) > 0
    refused = deployment.cli("results", job, "--format", "openai", expect=64)
    assert "scores" in refused.stderr


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_an_embed_job(deployment: Deployment, tiny_model: Path, model: Any, pooling: str) -> None:
    rows: list[dict[str, Any]] = [
        {"custom_id": f"row-{i}", "input": f"{'A passage to be found. ' * 8}It is number {i}."}
        for i in range(ROWS)
    ]
    rows[4] = {
        "custom_id": "line", "method": "POST", "url": "/v1/embeddings",
        "body": {"model": "x", "input": "As OpenAI has it", "encoding_format": "float"},
    }  # fmt: skip
    job, found = killed_in_between(
        deployment, tiny_model, rows, "--kind", "embed", "--pooling", pooling,
        "--served-model-name", "x",
    )  # fmt: skip
    assert all(row["error"] is None for row in found)
    for i in (0, 4, ROWS - 1):
        text = rows[i].get("input") or rows[i]["body"]["input"]
        ids = tokens(tiny_model, text)
        states = reference.hidden_states(model, ids)
        expected = states[-1] if pooling == "last" else states.mean(0)
        found_vector = torch.tensor(found[i]["embedding"])
        torch.testing.assert_close(found_vector, expected / expected.norm(), atol=1e-4, rtol=1e-4)
        assert found[i]["prompt_tokens"] == len(ids)
    table = pq.read_table(deployment.home / "storage" / job / "v1")
    assert table.schema.field("embedding").type == pa.list_(pa.float32())
    lines = deployment.cli("results", job, "--format", "openai", "-o", "-").stdout.splitlines()
    body = json.loads(lines[4])["response"]["body"]
    assert (body["object"], body["data"][0]["object"]) == ("list", "embedding")
    assert body["data"][0]["embedding"] == found[4]["embedding"]
    assert body["usage"] == {
        "prompt_tokens": found[4]["prompt_tokens"], "total_tokens": found[4]["prompt_tokens"],
    }  # fmt: skip
