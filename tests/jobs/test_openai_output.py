"""Lines of OpenAI's batch output, made of output rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.openai_output import openai_lines
from jobs.parts import answered
from jobs.records import Choice, JobRecord, RowErrorInfo, RowResult, TokenLogprob, TopLogprob
from jobs.result_table import result_table
from jobs.schema import NORMALIZED
from jobs.storage import Storage
from tests.support.openai_shapes import check_line
from tests.support.played_job import Window, add_job, sqlite_store

pytestmark = pytest.mark.quick

ANSWER = RowResult(0, "hi", "stop", prompt_tokens=5, cached_tokens=4, completion_tokens=2, seed=1)
EURO = "€".encode()
TOKENS = (
    TokenLogprob(1, "a", b"a", -0.25, (TopLogprob(1, "a", -0.25), TopLogprob(9, "b", -2.0))),
    TokenLogprob(2, "\ufffd", EURO[:2], -0.5, (TopLogprob(2, "\ufffd", -0.5),)),
    TokenLogprob(3, "\ufffd", EURO[2:], -1.0, (TopLogprob(4, "\ufffd", -0.75),)),
    TokenLogprob(5, "é", "é".encode(), float("-inf"), (TopLogprob(6, "É", float("-inf")),)),
    TokenLogprob(7, "<eos>", b"", -0.125),
)


@pytest.fixture
def job(migrated_sqlite: Path, tmp_path: Path) -> Iterator[JobRecord]:
    with sqlite_store(migrated_sqlite, tmp_path) as store:
        played = add_job(store, Storage(str(tmp_path)), [Window([[0]])])
        yield replace(store.job(played.id), id="job_abc")


def rows(*results: RowResult, chat: bool = True, ids: bool = True) -> pa.Table:
    """Output rows of a job: chats, or prompts."""
    normalized = [
        {
            "row_index": r.row_index,
            "line": r.row_index + 1,
            "custom_id": f"id-{r.row_index}" if ids else None,
            "messages" if chat else "prompt": "[]",
        }
        for r in results
    ]
    return answered(pa.Table.from_pylist(normalized, NORMALIZED), result_table(results), "tiny")


def lines(table: pa.Table, job: JobRecord, version: int = 1) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in openai_lines(table, job, version)]
    for line in found:
        check_line(line)
    return found


def test_a_chat_is_a_chat_completion(job: JobRecord) -> None:
    (line,) = lines(rows(ANSWER), job)

    assert line == {
        "id": "batch_req_abc-v1-0",
        "custom_id": "id-0",
        "response": {
            "status_code": 200,
            "request_id": "req_abc-v1-0",
            "body": {
                "id": "chatcmpl-abc-v1-0",
                "object": "chat.completion",
                "created": int(job.created_at.timestamp()),
                "model": "tiny",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "hi", "refusal": None},
                        "logprobs": None,
                        "finish_reason": "stop",
                    }
                ],
                "usage": {
                    "prompt_tokens": 5,
                    "completion_tokens": 2,
                    "total_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 4},
                },
                "system_fingerprint": None,
            },
        },
        "error": None,
    }


def test_a_prompt_is_a_text_completion(job: JobRecord) -> None:
    (line,) = lines(rows(ANSWER, chat=False), job)

    body = line["response"]["body"]
    assert body["id"] == "cmpl-abc-v1-0"
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "hi", "logprobs": None, "finish_reason": "stop"}
    ]


@pytest.mark.parametrize("chat", [True, False])
def test_several_choices_are_in_their_order(job: JobRecord, chat: bool) -> None:
    choices = (Choice("hi", "stop", 1, TOKENS[:1]), Choice("ho", "length", 1, ()))
    (line,) = lines(rows(replace(ANSWER, choices=choices), chat=chat), job)

    found = line["response"]["body"]["choices"]
    texts = [c["message"]["content"] if chat else c["text"] for c in found]
    assert texts == ["hi", "ho"]
    assert [c["finish_reason"] for c in found] == ["stop", "length"]
    assert all(c["logprobs"] is not None for c in found)


def test_log_probabilities_of_a_chat(job: JobRecord) -> None:
    (line,) = lines(rows(replace(ANSWER, logprobs=TOKENS)), job)

    content = line["response"]["body"]["choices"][0]["logprobs"]["content"]
    assert content[0] == {
        "token": "a",
        "logprob": -0.25,
        "bytes": [97],
        "top_logprobs": [
            {"token": "a", "logprob": -0.25, "bytes": [97]},
            {"token": "b", "logprob": -2.0, "bytes": [98]},
        ],
    }
    # Parts of a character: the bytes of the chosen token are known, those of others are not.
    assert content[1]["top_logprobs"] == [
        {"token": "\ufffd", "logprob": -0.5, "bytes": list(EURO[:2])}
    ]
    assert content[2]["bytes"] == list(EURO[2:])
    assert content[2]["top_logprobs"][0]["bytes"] is None
    assert content[3]["logprob"] == content[3]["top_logprobs"][0]["logprob"] == -9999.0
    assert content[4] == {"token": "<eos>", "logprob": -0.125, "bytes": [], "top_logprobs": []}


def test_log_probabilities_of_a_completion(job: JobRecord) -> None:
    table = rows(replace(ANSWER, text="a€é", logprobs=TOKENS), chat=False)
    (line,) = lines(table, job)

    found = line["response"]["body"]["choices"][0]["logprobs"]
    assert found == {
        "tokens": ["a", "\ufffd", "\ufffd", "é", "<eos>"],
        "token_logprobs": [-0.25, -0.5, -1.0, -9999.0, -0.125],
        "top_logprobs": [
            {"b": -2.0, "a": -0.25},
            {"\ufffd": -0.5},
            {"\ufffd": -0.75},
            {"é": -9999.0, "É": -9999.0},
            {"<eos>": -0.125},
        ],
        "text_offset": [0, 1, 1, 2, 3],
    }


def test_no_token_begins_behind_a_text_that_was_cut_at_a_stop_string(job: JobRecord) -> None:
    table = rows(replace(ANSWER, text="", logprobs=TOKENS[:1] * 3), chat=False)
    (line,) = lines(table, job)

    assert line["response"]["body"]["choices"][0]["logprobs"]["text_offset"] == [0, 0, 0]


def test_a_row_without_an_answer_is_an_error(job: JobRecord) -> None:
    failed = RowResult(3, error=RowErrorInfo("prompt_too_long", "too long", None, "prompt"))
    bare = RowResult(4, error=RowErrorInfo("nan_logits", "no numbers", 9))
    found = lines(rows(failed, bare), job)

    assert found[0] == {
        "id": "batch_req_abc-v1-3",
        "custom_id": "id-3",
        "response": None,
        "error": {
            "code": "prompt_too_long", "message": "too long", "line": 4, "param": "prompt",
        },
    }  # fmt: skip
    assert found[1]["error"] == {"code": "nan_logits", "message": "no numbers", "line": 9}


def test_rows_without_an_id_are_named_by_their_number(job: JobRecord) -> None:
    results = [replace(ANSWER, row_index=i) for i in (0, 7)]

    assert [r["custom_id"] for r in lines(rows(*results, ids=False), job)] == ["row-0", "row-7"]


def test_ids_are_of_the_job_the_version_and_the_row_alone(job: JobRecord) -> None:
    table = rows(*(replace(ANSWER, row_index=i) for i in range(3)))

    first, second = lines(table, job, 1), lines(table, job, 2)
    assert first == lines(table, replace(job, finished_at=None, started_at=None), 1)
    ids = [
        value
        for line in first + second
        for value in (line["id"], line["response"]["request_id"], line["response"]["body"]["id"])
    ]
    assert len(set(ids)) == len(ids) == 18


def test_a_version_of_before_endpoints_were_known_has_chats(job: JobRecord) -> None:
    table = rows(ANSWER)
    place = table.schema.get_field_index("endpoint")
    table = table.set_column(place, "endpoint", pa.nulls(1, pa.string()))

    assert lines(table, job)[0]["response"]["body"]["object"] == "chat.completion"
