"""What `pagemill estimate` counts is what a job then has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment

ENGINE = ("--max-model-len", "512", "--max-num-seqs", "8")
SYSTEM = "You answer questions about the orders of a shop that sells books and maps. " * 3


def generated() -> list[dict[str, Any]]:
    """Chats with a prefix in common, raw prompts, several samples, and rows that are refused."""
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": f"Where is order {i * 37}?"}], "max_tokens": 6}
        for i in range(60)
    ]
    rows[3] = {"prompt": "raw text", "temperature": 0.8, "seed": 11, "max_tokens": 5}
    rows[5]["n"], rows[5]["temperature"] = 3, 1.0
    rows[7] = {"prompt": 5}
    rows[9] = {"prompt": "x" * 3000}
    rows[11] = {"prompt": "y" * 509, "max_tokens": 20}
    return rows


def scored() -> list[dict[str, Any]]:
    return [
        {"prompt": f"Question {i}: is it far?", "choices": [" yes", " no", " perhaps"]}
        for i in range(20)
    ]


def embedded() -> list[dict[str, Any]]:
    return [{"prompt": f"{SYSTEM} Number {i}"} for i in range(20)]


CASES = [
    (generated(), ("--system", SYSTEM)),
    (scored(), ("--kind", "score")),
    (embedded(), ("--kind", "embed")),
]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(("rows", "options"), CASES, ids=["generate", "score", "embed"])
def test_the_counts_are_those_of_the_job(
    deployment: Deployment, tiny_model: Path, rows: list[dict[str, Any]], options: tuple[str, ...]
) -> None:
    file = write(deployment.home / "rows.jsonl", rows)
    asked = (file, "--model", str(tiny_model), *options, *ENGINE)
    # Rows that are computed once more, as their lease ran out, find more in the cache.
    deployment.hold_leases(60)

    before = json.loads(deployment.cli("estimate", *asked, "--json").stdout)
    deployment.cli("run", *asked, "--threads", "1", expect=None)
    after = json.loads(deployment.cli("estimate", *asked, "--json").stdout)

    job = json.loads(deployment.cli("list", "--json").stdout)[0]
    assert before["rows"]["good"] == job["rows"]["completed"]
    assert before["rows"]["refused"] == job["rows"]["failed"]
    assert before["prompt_tokens"]["total"] == job["tokens"]["prompt"]
    answered = [row for row in deployment.results(job["id"]) if row["error"] is None]
    assert before["prompt_tokens"]["max"] == max(row["prompt_tokens"] for row in answered)
    # Rows that come at the same moment may miss parts of a block that one after the other has.
    cached = job["tokens"]["cached"]
    assert 0 < cached <= before["shared_tokens"]
    assert before["shared_tokens"] - cached <= 16 * len(rows)
    assert job["tokens"]["completion"] <= before["completion_tokens"]
    assert before["speed"] is before["seconds_at_most"] is None
    assert after["speed"]["id"] == job["id"]
    assert after["speed"]["device"] == "cpu"
    assert after["seconds_at_most"] > 0
    assert {**after, "machine": 0, "speed": 0, "seconds_at_most": 0} == {
        **before, "machine": 0, "speed": 0, "seconds_at_most": 0,
    }  # fmt: skip


def test_refused_rows_and_answers_that_may_be_cut_are_told(
    deployment: Deployment, tiny_model: Path
) -> None:
    file = write(deployment.home / "rows.jsonl", generated())
    out = deployment.cli("estimate", file, "--model", str(tiny_model), *ENGINE).stdout

    assert "58 can be answered, 2 are refused" in out
    assert "line 8: " in out
    assert "[wrong_type]" in out
    assert "line 10: " in out
    assert "[prompt_too_long]" in out
    assert "1 row may reach the end of the context (512 tokens) before max_tokens" in out
    assert f"never measured: run a small job first: pagemill run {file}" in out
    assert not list(deployment.home.glob("storage/*"))
