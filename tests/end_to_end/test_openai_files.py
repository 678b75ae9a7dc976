"""A batch file as people have it for `vllm run-batch`: in unchanged, and out in the same words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.openai_shapes import check_line

pytestmark = pytest.mark.parametrize("deployment", ["sqlite+memory"], indirect=True)

MODEL = "bikes-2b"  # what the lines call the model, wherever it lies
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


def line(name: str, body: dict[str, Any], url: str = "/v1/chat/completions") -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": url, "body": {"model": MODEL, **body}}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


LINES = [
    line("plain", {"messages": [SYSTEM, user("Hello world!")], "max_completion_tokens": 12}),
    line(
        "several",
        {"messages": [SYSTEM, user("Hi")], "n": 3, "temperature": 1.0, "seed": 5, "max_tokens": 9},
    ),
    line(
        "likely",
        {"messages": [user("Hi")], "logprobs": True, "top_logprobs": 2, "max_tokens": 4},
    ),
    line("raw", {"prompt": "Once upon", "max_tokens": 6, "logprobs": 1}, "/v1/completions"),
    line(
        "called",
        {
            "messages": [
                user("Call f."),
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "7"},
            ],
            "max_tokens": 5,
        },
    ),
    line("streamed", {"messages": [user("Hi")], "stream": True}),
    line("embedded", {"input": "Hi"}, "/v1/embeddings"),
    line("typical", {"messages": [user("Hi")], "typical_p": 0.5}),
    line(
        "steered",
        {
            "messages": [user("Hi")],
            "max_tokens": 6,
            "min_tokens": 6,
            "frequency_penalty": 2,
            "logit_bias": {"0": 100, "30": 100},  # "!" and "?"
        },
    ),
    line("other-model", {"messages": [user("Hi")], "model": "another"}),
]
REFUSED = {
    "streamed": "unsupported_parameter",
    "embedded": "unsupported_url",
    "typical": "unsupported_parameter",
    "other-model": "model_mismatch",
}


def test_a_batch_file_in_and_out(deployment, tiny_model):
    source, target = deployment.home / "batch.jsonl", deployment.home / "answers.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in LINES))
    deployment.cli(
        "run", str(source), "--model", str(tiny_model), "--served-model-name", MODEL,
        "--num-blocks", "128", "--max-model-len", "256", "--threads", "1",
        "-o", str(target), "--output-format", "openai", expect=1,
    )  # fmt: skip
    found = [json.loads(text) for text in target.read_text().splitlines()]
    assert [row["custom_id"] for row in found] == [row["custom_id"] for row in LINES]
    for row in found:
        check_line(row)
    assert {r["custom_id"]: r["error"]["code"] for r in found if r["error"]} == REFUSED

    bodies = {r["custom_id"]: r["response"]["body"] for r in found if r["response"]}
    assert [c["index"] for c in bodies["several"]["choices"]] == [0, 1, 2]
    assert len({c["message"]["content"] for c in bodies["several"]["choices"]}) == 3
    assert all(len(p["top_logprobs"]) == 2 for p in choice(bodies["likely"])["logprobs"]["content"])
    assert bodies["raw"]["object"] == "text_completion"
    assert bodies["raw"]["usage"]["prompt_tokens"] <= len("Once upon") + 1  # no chat template
    assert bodies["plain"]["usage"]["completion_tokens"] <= 12
    steered = choice(bodies["steered"])["message"]["content"]
    assert (len(steered), set(steered) <= set("!?")) == (6, True)

    job = json.loads(deployment.cli("list", "--json").stdout)[0]["id"]
    again = deployment.cli("results", job, "--format", "openai", "-o", "-").stdout
    assert again == target.read_text()


def choice(body: dict[str, Any]) -> dict[str, Any]:
    (only,) = body["choices"]
    return only
