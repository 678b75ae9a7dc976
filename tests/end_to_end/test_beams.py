"""Rows that search by beams: killed in between, each is answered as transformers answers it."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from engine.sampling_params import SamplingParams
from tests.support.beam_references import beams_of_transformers
from tests.support.crash_points import workers_die_at
from tests.support.deployment import Deployment

ENGINE = ("--num-blocks", "512", "--max-model-len", "256", "--threads", "1")
# A search or two at a time: others are on the way when the worker is killed.
SLOW = ("--num-blocks", "128", "--max-model-len", "256", "--threads", "1", "--max-num-seqs", "8")
ROWS, MAX_TOKENS = 54, 24
# Letters of which the tiny model writes some: beams end at different lengths.
STOPS: tuple[list[int], ...] = ([], list(range(64)), list(range(100, 140)))


def rows() -> list[dict[str, Any]]:
    """Every width with every length penalty; kinds of early stopping and stop tokens in turn."""
    kinds = itertools.product((2, 3, 4), (0.0, 1.0, 2.0), (False, True, "never"))
    found: list[dict[str, Any]] = []
    for number, (width, penalty, early) in enumerate(
        itertools.islice(itertools.cycle(kinds), ROWS)
    ):
        found.append(
            {
                "custom_id": f"row-{number}",
                "prompt": f"All questions are about the library. Question {number}? Answer:",
                "num_beams": width,
                "n": 1 + number % width,
                "length_penalty": penalty,
                "early_stopping": early,
                "stop_token_ids": STOPS[number % len(STOPS)],
            }
        )
    found[7] = {"custom_id": "bad", "prompt": "x", "num_beams": 2, "stop": "y"}
    found[9] = {"custom_id": "wide", "prompt": "x", "num_beams": 65}
    return found


def expected(model: Any, tokenizer: Any, row: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Text, finish reason and number of tokens of each answer."""
    params = SamplingParams(
        MAX_TOKENS, num_beams=row["num_beams"], num_return_sequences=row["n"],
        length_penalty=row["length_penalty"], early_stopping=row["early_stopping"],
        stop_token_ids=tuple(row["stop_token_ids"]),
    )  # fmt: skip
    prompt = tuple(tokenizer(row["prompt"])["input_ids"])
    answers = [tokens for tokens, _ in beams_of_transformers(model, prompt, params)]
    return [
        (
            tokenizer.decode(tokens, skip_special_tokens=True),
            "stop" if tokens[-1] in params.stop_token_ids else "length",
            len(tokens),
        )
        for tokens in answers
    ]


@pytest.mark.parametrize("deployment", ["sqlite+memory"], indirect=True)
def test_searches_come_out_as_those_of_transformers(
    deployment: Deployment, tiny_model: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    asked = rows()
    job = deployment.submit(
        asked,
        tiny_model,
        "--chunk-rows",
        "6",
        "--max-tokens",
        str(MAX_TOKENS),
        "--ignore-eos",
    )
    with (
        workers_die_at("a chunk is committed", deployment),
        deployment.worker(tiny_model, *SLOW) as first,
    ):
        assert first.wait(200) == -signal.SIGKILL, first.logged()
    assert deployment.status(job)["state"] == "in_progress"
    with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as second:
        assert second.wait(400) == 0, second.logged()
    table = pq.read_table(deployment.home / "storage" / job / "v1").to_pylist()
    assert [row["row_index"] for row in table] == list(range(ROWS))
    errors = {
        r["custom_id"]: (r["error"]["code"], r["error"]["field"]) for r in table if r["error"]
    }
    assert errors == {
        "bad": ("invalid_parameter", "stop"), "wide": ("invalid_parameter", "num_beams"),
    }  # fmt: skip
    reasons = set()
    for given, row in zip(asked, table, strict=True):
        if row["error"] is not None:
            continue
        answers = expected(model, tokenizer, given)
        choices = row["choices"] or [row]
        found = [(c["text"], c["finish_reason"], c["completion_tokens"]) for c in choices]
        assert found == answers, given
        assert (row["choices"] is None) == (given["n"] == 1)
        assert row["text"] == answers[0][0]
        assert row["completion_tokens"] == sum(tokens for _, _, tokens in answers)
        reasons |= {reason for _, reason, _ in answers}
    assert reasons == {"stop", "length"}
