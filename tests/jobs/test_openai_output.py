"""Lines of OpenAI's batch output, made of output rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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


def offsets(job: JobRecord, pieces: list[bytes]) -> list[int]:
    """The offsets of tokens with these bytes, whose text is whole."""
    text = b"".join(pieces).decode(errors="replace")
    tokens = tuple(TokenLogprob(1, "?", piece, -1.0) for piece in pieces)
    (line,) = lines(rows(replace(ANSWER, text=text, logprobs=tokens), chat=False), job)
    found: list[int] = line["response"]["body"]["choices"][0]["logprobs"]["text_offset"]
    return found


def characters(data: bytes) -> list[int]:
    """Of each byte, the number of the character of the decoded text to which it belongs."""
    owners: list[int] = []
    at = 0
    for number, character in enumerate(data.decode(errors="replace")):
        size = len(character.encode())
        if data[at : at + size] != character.encode():  # torn: as many bytes as were given up
            try:
                data[at:].decode()
                raise AssertionError("it must not be text")
            except UnicodeDecodeError as error:
                size = error.end - error.start
        owners += [number] * size
        at += size
    assert at == len(data)
    return owners


# Whole and torn characters of each length, bytes that begin none, and U+FFFD as it is written.
PIECES = st.one_of(
    st.text(max_size=3).map(str.encode),
    st.binary(max_size=4),
    st.sampled_from([
        b"", b"9", b"\n", EURO[:1], EURO[:2], EURO[1:], EURO[2:], "😀".encode()[:3], b"\x80",
        b"\xc0", b"\xed\xa0", b"\xed\xa0\x80", b"\xe0\x80", b"\xf4\x90", b"\xff",
        "\ufffd".encode(),
    ]),
)  # fmt: skip


@pytest.mark.slow
@example([b"\xed", b"\xa0"])  # half of a surrogate pair, which is no character
@given(st.lists(PIECES, max_size=12))
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_token_begins_where_the_character_of_its_first_byte_does(
    job: JobRecord, pieces: list[bytes]
) -> None:
    """Also after characters that are torn; one without bytes, where the next one begins."""
    data = b"".join(pieces)
    owners = [*characters(data), len(data.decode(errors="replace"))]
    at = [sum(map(len, pieces[:i])) for i in range(len(pieces))]

    assert offsets(job, pieces) == [owners[i] for i in at]


def test_a_whole_token_after_a_torn_character_has_its_own_place(job: JobRecord) -> None:
    pieces = [b"S", b"\xe2", b"9", b"\xf0\x9f", b"\n", b"\xe2\x82", b"\xe2"]
    assert offsets(job, pieces) == [0, 1, 2, 3, 4, 5, 6]


def test_nothing_in_an_answer_ends_its_line_for_whoever_reads_lines(job: JobRecord) -> None:
    text = "a\x85b\u2028c\u2029d"
    (line,) = openai_lines(rows(replace(ANSWER, text=text)), job, 1)
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line)["response"]["body"]["choices"][0]["message"]["content"] == text


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


def test_a_row_without_an_id_has_one_that_no_other_row_has(job: JobRecord) -> None:
    """Whatever ids the other rows have: their authors cannot know the job's."""
    results = [replace(ANSWER, row_index=i) for i in range(6)]
    table = rows(*results)
    given = ["row-1", None, "1", "", "batch_req_1", None]
    table = table.set_column(
        table.schema.get_field_index("custom_id"), "custom_id", pa.array(given, pa.string())
    )

    found = lines(table, job)

    assert len({line["custom_id"] for line in found}) == len(found)
    for line, own in zip(found, given, strict=True):
        assert line["custom_id"] == (own or line["id"])


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
