"""Rows of Parquet files: tools, variables for the chat template, and lines of batch files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.errors import InputError
from tests.support.submissions import prepare_lines, prepare_table

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "hi"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "now"}},
]


@pytest.mark.parametrize("as_json", [False, True])
def test_tools_are_structs_or_json_and_what_is_null_is_left_out(
    tmp_path: Path, as_json: bool
) -> None:
    columns = {
        "messages": [[USER]] * 3,
        "tools": [json.dumps(TOOLS) if as_json else TOOLS, None, "[]" if as_json else []],
        "chat_template_kwargs": [
            json.dumps(kwargs) if as_json and kwargs is not None else kwargs
            for kwargs in ({"a": 1}, {"b": [1, 2]}, None)
        ],
    }
    done = prepare_table(tmp_path, pa.table(columns))
    assert [row["chat"] for row in done.rows()] == [
        {"tools": TOOLS, "template_kwargs": {"a": 1}},
        {"template_kwargs": {"b": [1, 2]}},
        None,
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_tool_calls(tmp_path: Path, as_json: bool) -> None:
    arguments = [{"city": "Paris"}, {"unit": "C"}]
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": "f", "arguments": given}}
        for i, given in enumerate(arguments)
    ]
    told: Any = json.dumps(calls) if as_json else calls
    messages = [USER, {"role": "assistant", "tool_calls": told}, {"role": "tool", "content": "x"}]
    done = prepare_table(tmp_path, pa.table({"messages": [messages]}))
    assert done.rows()[0]["messages"] == [
        USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "x"},
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_lines_of_a_batch_file(tmp_path: Path, as_json: bool) -> None:
    bodies: list[dict[str, Any]] = [
        {"model": "tiny", "messages": [USER], "max_tokens": 5},
        {"messages": [USER], "tools": TOOLS, "response_format": {"type": "text"}},
        {"prompt": "hi", "logprobs": 2},
        {"messages": [USER], "temperature": -1.0},
    ]
    urls = ["/v1/chat/completions", "/v1/chat/completions", "/v1/completions", "/v1/responses"]
    lines = [
        {"custom_id": f"{i}", "method": "POST", "url": url, "body": body, "meta": i}
        for i, (url, body) in enumerate(zip(urls, bodies, strict=True))
    ]
    table = pa.Table.from_pylist(
        [line | {"body": json.dumps(line["body"])} for line in lines] if as_json else lines
    )
    done, other = prepare_table(tmp_path / "a", table), prepare_lines(tmp_path / "b", *lines)
    same = ("custom_id", "prompt", "messages", "chat", "params")
    assert [[row[name] for name in same] for row in done.rows()] == [
        [row[name] for name in same] for row in other.rows()
    ]
    assert done.errors() == other.errors() == [(4, "unsupported_url", "url")]
    assert [row["carried:meta"] for row in done.rows()] == [0, 1, 2]
    assert not {"carried:method", "carried:url", "carried:body"} & set(done.rows()[0])


def test_columns_of_such_names_beside_a_prompt_are_data(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["a"], "method": [1], "url": [2], "body": [{"x": 1}]})
    (row,) = prepare_table(tmp_path, table).rows()
    assert (row["carried:method"], row["carried:body"]) == (1, {"x": 1})


def test_parameters_that_change_nothing_are_dropped(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": ["a", "b"],
            "typical_p": [1.0, 0.5],
            "response_format": [{"type": "text", "json_schema": None}, None],
            "n": pa.array([2, None], pa.int8()),
            "logprobs": pa.array([0, None], pa.int64()),
        }
    )
    done = prepare_table(tmp_path, table)
    (row,) = done.rows()
    assert row["params"] == {"n": 2, "logprobs": 0, "grammar": None}
    assert not [name for name in row if name.startswith("carried:")]
    assert done.errors() == [(2, "unsupported_parameter", "typical_p")]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"tools": [1]}, "column 'tools' .* must be list<struct<type, function>>, or string that"),
        ({"tools": [["f"]]}, "column 'tools' .* must be list<struct"),
        ({"chat_template_kwargs": [1]}, "must be struct, or string that holds JSON"),
        ({"reasoning_effort": [1]}, "must be string"),
        ({"n": [1.0]}, "must be an integer type"),
        ({"logprobs": [True]}, "must be an integer type"),
    ],
)
def test_columns_of_a_wrong_type(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        prepare_table(tmp_path, pa.table({"messages": [[USER]]} | columns))


def test_columns_of_a_wrong_type_in_a_batch_file(tmp_path: Path) -> None:
    table = pa.table({"method": ["POST"], "url": ["/v1/completions"], "body": [1]})
    with pytest.raises(InputError, match=r"column 'body' .* must be struct, or string that"):
        prepare_table(tmp_path, table)


def test_a_body_that_has_a_key_twice_is_an_error_row_as_in_json_lines(tmp_path: Path) -> None:
    bodies = [
        '{"prompt": "a", "prompt": "b"}',
        '{"prompt": "a", "\\u0070rompt": "b"}',
        '{"prompt": "a \\"prompt\\" \\"prompt\\"", "user": "prompt"}',
        '{"prompt": "prompt", "user": {"prompt": 1}}',
    ]
    rows = len(bodies)
    columns = {"method": ["POST"] * rows, "url": ["/v1/completions"] * rows, "body": bodies}
    done = prepare_table(tmp_path, pa.table(columns))
    assert done.errors() == [(1, "duplicate_key", "body"), (2, "duplicate_key", "body")]
    assert [row["prompt"] for row in done.rows()] == ['a "prompt" "prompt"', "prompt"]


def test_json_that_is_none_is_an_error_row(tmp_path: Path) -> None:
    table = pa.table({"messages": [[USER]] * 3, "tools": ["[", "{}", None]})
    done = prepare_table(tmp_path, table)
    assert done.errors() == [(1, "invalid_json", "tools"), (2, "wrong_type", "tools")]
