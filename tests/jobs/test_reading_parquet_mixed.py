"""Rows of Parquet files that hold lines of batch files and plain rows, and columns of nulls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.reading import columns
from tests.support.submissions import prepare_file, prepare_lines, prepare_table

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "hi"}
BODY = {"prompt": "x", "max_tokens": 2}
URL = "/v1/completions"
SAME = ("row_index", "custom_id", "prompt", "messages", "params")
LINE = ("method", "url", "body")


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("views", [False, True])
def test_lines_and_plain_rows_in_one_file_are_read_as_in_json_lines(
    tmp_path: Path, as_json: bool, views: bool
) -> None:
    body = json.dumps(BODY) if as_json else BODY
    line = {"method": "POST", "url": URL, "body": body}
    rows: list[dict[str, Any]] = [
        {"custom_id": "plain", "prompt": "p", "max_tokens": 3},
        {"custom_id": "line"} | line,
        {"custom_id": "chat", "messages": [USER]},
        {"custom_id": "both", "prompt": "p"} | line,
        {"custom_id": "misplaced", "max_tokens": 3} | line,
        {"custom_id": "other"} | line | {"url": "/v1/embeddings"},
        {"custom_id": "bodiless"} | line | {"body": None},
        {"custom_id": "nothing"},
    ]
    names = ("custom_id", "prompt", "messages", "max_tokens", *LINE)
    rows = [{name: row.get(name) for name in names} for row in rows]
    table = pa.Table.from_pylist(rows)
    if views:
        table = table.set_column(table.schema.names.index("url"), "url",
                                 table["url"].cast(pa.string_view()))  # fmt: skip
    for row in rows:  # a body of JSON lines is an object
        row["body"] = BODY if row["body"] else None
    done, other = prepare_table(tmp_path / "a", table), prepare_lines(tmp_path / "b", *rows)
    assert [[r[n] for n in SAME] for r in done.rows()] == [
        [r[n] for n in SAME] for r in other.rows()
    ]
    assert {r["custom_id"] for r in done.rows()} == {"plain", "line", "chat", "both"}
    assert done.errors() == other.errors()
    assert done.errors()[2:] == [(7, "missing_field", "body"), (8, "missing_prompt", "prompt")]
    assert [r["custom_id"] for r in done.rejected()] == [
        "misplaced", "other", "bodiless", "nothing"
    ]  # fmt: skip
    carried = {r["custom_id"]: [r[f"carried:{n}"] for n in LINE] for r in done.rows()}
    nulls = [None] * 3
    assert carried == {
        "plain": nulls, "line": nulls, "chat": nulls, "both": ["POST", URL, body]
    }  # fmt: skip


@pytest.mark.parametrize("empty", ["prompt", "messages"])
def test_a_column_of_nulls_beside_the_lines_is_left_out(tmp_path: Path, empty: str) -> None:
    bodies = [json.dumps(BODY)] * 2
    table = pa.table({"method": ["POST"] * 2, "url": [URL] * 2, "body": bodies, empty: pa.nulls(2)})
    rows = prepare_table(tmp_path, table).rows()
    assert [(r["prompt"], r["params"]) for r in rows] == [("x", {"max_tokens": 2})] * 2
    assert not {f"carried:{name}" for name in LINE} & set(rows[0])


def test_a_table_of_web_pages_is_answered_whatever_their_bytes(tmp_path: Path) -> None:
    latin = pa.array([b"caf\xe9", b"tea"]).view(pa.string())
    table = pa.table({"prompt": ["a", "b"], "method": ["GET"] * 2, "url": ["u"] * 2, "body": latin})
    assert prepare_table(tmp_path, table).job.plan.rejected == 0


def test_an_error_row_of_bad_bytes_keeps_its_id(tmp_path: Path) -> None:
    latin = pa.array([b"caf\xe9", b"tea"]).view(pa.string())
    done = prepare_table(tmp_path, pa.table({"prompt": latin, "custom_id": ["a", "b"]}))
    (row,) = done.rejected()
    assert (row["error"]["code"], row["custom_id"]) == ("invalid_utf8", "a")


OURS = sorted({*columns._TYPES, "prompt", "messages", "custom_id"})


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("asks", ["prompt", "messages", "body"])
def test_every_column_of_ours_may_be_all_null(tmp_path: Path, name: str, asks: str) -> None:
    questions: dict[str, dict[str, Any]] = {
        "prompt": {"prompt": ["a"]},
        "messages": {"messages": [[USER]]},
        "body": {"method": ["POST"], "url": [URL], "body": [json.dumps(BODY)]},
    }
    given = questions[asks]
    if name in given:  # the row would ask nothing
        given = questions["messages" if asks == "prompt" else "prompt"]
    (row,) = prepare_table(tmp_path, pa.table(given | {name: pa.nulls(1)})).rows()
    assert row["params"] in (None, {"max_tokens": 2})
    assert (row["chat"], row["custom_id"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "kind", "value", "error"),
    [
        ("messages", pa.list_(pa.null()), [], ("empty_messages", "messages")),
        ("messages", pa.list_(pa.null()), [None], ("wrong_type", "messages[0]")),
        ("messages", pa.list_(pa.null()), None, None),
        ("messages", pa.list_(pa.struct([("role", pa.null()), ("content", pa.null())])),
         [{"role": None, "content": None}], ("missing_field", "messages[0].role")),
        ("stop", pa.list_(pa.null()), [], None),
        ("stop", pa.list_(pa.null()), [None], ("wrong_type", "stop[0]")),
        ("stop_token_ids", pa.list_(pa.null()), [], None),
        ("bad_words_ids", pa.list_(pa.null()), [], None),
        ("bad_words_ids", pa.list_(pa.list_(pa.null())), [[None]],
         ("wrong_type", "bad_words_ids[0][0]")),
        ("allowed_token_ids", pa.list_(pa.null()), [], ("invalid_parameter", "allowed_token_ids")),
        ("logit_bias", pa.struct([("7", pa.null())]), {"7": None}, None),
        ("tools", pa.list_(pa.null()), [], None),
        ("tools", pa.list_(pa.null()), [None], ("wrong_type", "tools[0]")),
        ("chat_template_kwargs", pa.struct([("a", pa.null())]), None, None),
        ("tool_choice", pa.struct([("a", pa.null())]), None, None),
        ("response_format", pa.null(), None, None),
        ("logprobs", pa.list_(pa.null()), [None], None),
    ],
)  # fmt: skip
def test_nulls_within_lists_and_structs_are_as_in_json_lines(
    tmp_path: Path, name: str, kind: pa.DataType, value: Any, error: tuple[str, str] | None
) -> None:
    last = None if name == "messages" and value is not None else "a"
    rows = [{"prompt": "first"}, {"prompt": last, name: value}]
    table = pa.table({"prompt": ["first", last], name: pa.array([None, value], kind)})
    done, other = prepare_table(tmp_path / "a", table), prepare_lines(tmp_path / "b", *rows)
    assert done.errors() == other.errors() == ([(2, *error)] if error else [])


@pytest.mark.parametrize("name", ["method", "url", "body"])
def test_a_line_that_lacks_a_part_in_a_column_of_nulls(tmp_path: Path, name: str) -> None:
    line: dict[str, Any] = {"method": "POST", "url": URL, "body": json.dumps(BODY)}
    kinds = {key: pa.nulls(1) if key == name else [value] for key, value in line.items()}
    table = pa.table(kinds | {"prompt": pa.array([None], pa.string())})
    table = pa.concat_tables([table, pa.table({"prompt": ["a"]})], promote_options="default")
    done = prepare_table(tmp_path, table)
    assert done.errors() == [(1, "missing_field", name)]


def test_messages_that_are_null_in_the_first_file_of_a_folder(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    other = call | {"function": {"name": "f", "arguments": {"b": 1}}}
    chats = [[USER, {"role": "assistant", "tool_calls": [call, other]}]]
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["a"], "messages": pa.nulls(1)}), folder / "1.parquet")
    pq.write_table(
        pa.table({"prompt": pa.nulls(1, pa.string()), "messages": chats}), folder / "2.parquet"
    )
    rows = prepare_file(folder, tmp_path / "out").rows()
    chat = next(row["messages"] for row in rows if row["messages"])
    assert chat[1]["tool_calls"] == [call, other]
