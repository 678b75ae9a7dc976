"""Rows that say what their answer has to be, from a file to the output."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

pytestmark = pytest.mark.parametrize("deployment", ["sqlite+memory"], indirect=True)

ENGINE = ("--num-blocks", "512", "--max-model-len", "2048", "--threads", "1")
SCHEMA = {
    "type": "object",
    "properties": {
        "urgent": {"type": "boolean"},
        "topic": {"enum": ["loan", "room", "fine"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["urgent", "topic", "days"],
    "additionalProperties": False,
}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": SCHEMA}}
NUMBER = {"regex": r"\d{3}-\d{4}"}
MOOD = {"choice": ["glad", "sad", "neither"]}
EXPLODING = {"properties": {f"p{i}": {"type": "boolean"} for i in range(20_000)}}


def row(name: str, **more: Any) -> dict[str, Any]:
    """A row with room for the blanks that a model without sense puts into JSON: some hundreds."""
    return {
        "custom_id": name, "prompt": f"Question {name}: ", "max_tokens": 1800, "temperature": 0.9,
        **more,
    }  # fmt: skip


def kept(by_id: dict[str, str]) -> None:
    """What every answer has to be."""
    jsonschema.validate(json.loads(by_id["schema"]), SCHEMA)
    assert re.fullmatch(NUMBER["regex"], by_id["number"])
    assert by_id["mood"] in MOOD["choice"]


def test_three_kinds_of_rows_and_some_bad_ones(deployment, tiny_model):
    rows = [
        row("schema", response_format=BY_SCHEMA),
        row("number", structured_outputs=NUMBER, n=3),
        row("mood", structured_outputs=MOOD),
        row("plain", max_tokens=5),
        row("bad", response_format={"type": "json_object", "schema": {"type": "colour"}}),
        row("exploding", json_schema=EXPLODING),
        row("misspelt", structured_outputs={"regexp": "a"}),
    ]
    source, target = deployment.home / "rows.jsonl", deployment.home / "out.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    deployment.cli(
        "run", str(source), "--model", str(tiny_model), *ENGINE, "-o", str(target), expect=1
    )
    found = {r["custom_id"]: r for r in map(json.loads, target.read_text().splitlines())}
    kept({name: found[name]["text"] for name in ("schema", "number", "mood")})
    assert all(re.fullmatch(NUMBER["regex"], c["text"]) for c in found["number"]["choices"])
    assert {found[name]["finish_reason"] for name in ("schema", "number", "mood")} == {"stop"}
    assert found["plain"]["error"] is None
    assert found["bad"]["error"]["code"] == "invalid_grammar"
    assert found["bad"]["error"]["field"] == "response_format.schema"
    assert found["exploding"]["error"]["code"] == "grammar_too_large"
    assert found["exploding"]["error"]["field"] == "json_schema"
    assert found["misspelt"]["error"]["code"] == "unknown_field"


def test_a_batch_file_asks_for_it_as_openais_api_and_vllm_do(deployment, tiny_model):
    def line(name: str, body: dict[str, Any]) -> dict[str, Any]:
        asked = {
            "messages": [{"role": "user", "content": name}], "temperature": 0.9,
            "max_completion_tokens": 1800,
        }  # fmt: skip
        return {
            "custom_id": name, "method": "POST", "url": "/v1/chat/completions",
            "body": {**asked, **body},
        }  # fmt: skip

    lines = [
        line("schema", {"response_format": BY_SCHEMA}),
        line("number", {"structured_outputs": NUMBER}),
        line("mood", {"structured_outputs": MOOD}),
        line("bad", {"structured_outputs": {"regex": "(a"}}),
    ]
    source, target = deployment.home / "batch.jsonl", deployment.home / "answers.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in lines))
    deployment.cli(
        "run", str(source), "--model", str(tiny_model), *ENGINE, "-o", str(target),
        "--output-format", "openai", expect=1,
    )  # fmt: skip
    found = {r["custom_id"]: r for r in map(json.loads, target.read_text().splitlines())}
    kept(
        {
            name: r["response"]["body"]["choices"][0]["message"]["content"]
            for name, r in found.items()
            if r["response"]
        }
    )
    assert found["bad"]["error"]["code"] == "invalid_grammar"


def test_a_job_asks_it_for_all_rows_and_a_row_for_something_else(deployment, tiny_model):
    rows = [row("a"), row("b"), row("own", structured_outputs=MOOD)]
    rows.append(row("free", response_format={"type": "text"}, max_tokens=5))
    source, target = deployment.home / "rows.jsonl", deployment.home / "out.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    deployment.cli(
        "run", str(source), "--model", str(tiny_model), *ENGINE, "-o", str(target),
        "--response-format", json.dumps(BY_SCHEMA),
    )  # fmt: skip
    found = {r["custom_id"]: r["text"] for r in map(json.loads, target.read_text().splitlines())}
    for name in ("a", "b"):
        jsonschema.validate(json.loads(found[name]), SCHEMA)
    assert found["own"] in MOOD["choice"]
    assert found["free"]
