"""Rows of Parquet files: types, carried columns, and files that are damaged."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from jobs.errors import InputError
from jobs.prompts import PromptRules
from jobs.reading import batch_size
from jobs.reading.opening import open_input
from tests.support.submissions import Prepared, prepare_file, prepare_table

pytestmark = pytest.mark.quick

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
CHAT = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_kind_of_string_is_a_prompt(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"prompt": pa.array(["b", "a", "b"], kind)})
    done = prepare_table(tmp_path, table)
    assert [(r["row_index"], r["line"], r["prompt"]) for r in done.rows()] == [
        (0, 1, "b"),
        (1, 2, "a"),
        (2, 3, "b"),
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(MESSAGE),
        pa.large_list(MESSAGE),
        pa.list_(MESSAGE, 1),
        pa.list_view(MESSAGE),
        pa.list_(pa.struct([*MESSAGE, ("name", pa.string())])),
        pa.list_(pa.struct([("content", pa.large_string()), ("role", pa.string())])),
    ],
    ids=str,
)
def test_every_kind_of_list_holds_messages(tmp_path: Path, kind: pa.DataType) -> None:
    done = prepare_table(tmp_path, pa.table({"messages": pa.array([CHAT], kind)}))
    assert done.rows()[0]["messages"] == CHAT


def test_content_as_text_parts(tmp_path: Path) -> None:
    part = pa.struct([("type", pa.string()), ("text", pa.string()), ("image", pa.string())])
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.list_(part))]))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    done = prepare_table(
        tmp_path, pa.table({"messages": pa.array([[{"role": "user", "content": parts}]], kind)})
    )
    assert done.rows()[0]["messages"] == [{"role": "user", "content": "ab"}]


def test_a_file_may_hold_prompts_and_chats(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": ["a", None, "c", None],
            "messages": pa.array([None, CHAT, CHAT, None], pa.list_(MESSAGE)),
        }
    )
    done = prepare_table(tmp_path, table)
    assert [(r["row_index"], r["prompt"], r["messages"]) for r in done.rows()] == [
        (0, "a", None),
        (1, None, CHAT),
    ]
    assert done.errors() == [(3, "prompt_and_messages", None), (4, "missing_prompt", "prompt")]


def test_parameters_are_columns_and_null_is_not_set(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": ["a", "b", "c", "d"],
            "custom_id": pa.array([1, None, 3, 4], pa.uint16()),
            "max_tokens": pa.array([5, None, 0, 5], pa.int8()),
            "temperature": pa.array([0.5, None, 1.0, float("nan")], pa.float64()),
            "seed": pa.array([2**63 - 1, None, 1, 1], pa.uint64()),
            "stop": pa.array([["x"], None, [], []], pa.list_(pa.string())),
            "stop_token_ids": pa.array([[7], None, [], []], pa.list_(pa.int32())),
            "ignore_eos": [True, None, False, False],
            "logit_bias": [{"7": -1, "9": None}, None, None, None],
            "bad_words": pa.array([["no"], None, None, None], pa.list_(pa.string())),
            "bad_words_ids": pa.array([[[1, 2], [3]], None, [], []], pa.list_(pa.list_(pa.int8()))),
            "min_p": pa.array([0.5, None, None, None], pa.float32()),
            "include_stop_str_in_output": [True, None, None, None],
            "top_p": pa.nulls(4),
            "tools": pa.nulls(4),
        }
    )
    done = prepare_table(tmp_path, table)
    assert [(r["custom_id"], r["params"]) for r in done.rows()] == [
        (
            "1",
            {
                "max_tokens": 5,
                "temperature": 0.5,
                "seed": 2**63 - 1,
                "stop": ["x"],
                "stop_token_ids": [7],
                "ignore_eos": True,
                "logit_bias": {"7": -1.0},
                "bad_words": ["no"],
                "bad_words_ids": [[1, 2], [3]],
                "min_p": 0.5,
                "include_stop_str_in_output": True,
            },
        ),
        (None, None),
    ]
    assert done.errors() == [
        (3, "invalid_parameter", "max_tokens"),
        (4, "invalid_parameter", "temperature"),
    ]
    assert [r["custom_id"] for r in done.rejected()] == ["3", "4"]


CARRIED = pa.table(
    {
        "prompt": ["b", None, "a"],
        "number": pa.array([1, 2, 3], pa.int16()),
        "when": pa.array(
            [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 3, pa.timestamp("us", "UTC")
        ),
        "price": pa.array([decimal.Decimal("1.50")] * 3, pa.decimal128(8, 2)),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "tags": pa.array([["p"], None, []], pa.list_(pa.string())),
        "deep": pa.array(
            [{"a": [{"b": 1}]}, {"a": None}, None],
            pa.struct([("a", pa.list_(pa.struct([("b", pa.int64())])))]),
        ),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "raw": pa.array([b"\xff", None, b""], pa.binary()),
        "nothing": pa.nulls(3),
        "text": ["t1", "t2", "t3"],
        "a.b": [1.0, 2.0, 3.0],
    }
)


def carried(done: Prepared) -> dict[str, list[Any]]:
    """Carried columns of all rows in input order, from the copy and the refused rows."""
    with done.copy as file:
        copy = file.read()
    names = [name.removeprefix("carried:") for name in copy.column_names]
    tables = [copy.rename_columns(names), *done.rejected_tables()]
    kept = ["row_index", *[n for n in tables[-1].column_names if n in names[6:]]]
    whole = pa.concat_tables([t.select(kept) for t in tables]).sort_by("row_index")
    result: dict[str, list[Any]] = whole.drop(["row_index"]).to_pydict()
    return result


def test_other_columns_are_carried_with_their_types(tmp_path: Path) -> None:
    done = prepare_table(tmp_path, CARRIED)
    expected = {
        "input.text" if name == "text" else name: CARRIED[name].to_pylist()
        for name in CARRIED.column_names[1:]
    }
    assert carried(done) == expected
    with done.copy as file:
        schema = file.schema_arrow
    for name in CARRIED.column_names[1:]:
        target = "carried:input.text" if name == "text" else f"carried:{name}"
        assert schema.field(target).type.equals(CARRIED.schema.field(name).type) or name == "word"
    assert pa.types.is_dictionary(schema.field("carried:word").type)


def test_views_are_carried_as_plain_lists_and_strings(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": ["b", "a"],
            "s": pa.array(["x", "y"], pa.string_view()),
            "b": pa.array([b"x", b"y"], pa.binary_view()),
            "l": pa.array([["x"], []], pa.list_view(pa.string_view())),
            "r": pa.array([{"v": "x"}, {"v": "y"}], pa.struct([("v", pa.string_view())])),
        }
    )
    done = prepare_table(tmp_path, table)
    with done.copy as file:
        rows = sorted(file.read().to_pylist(), key=lambda row: row["row_index"])
    assert [row["carried:l"] for row in rows] == [["x"], []]
    assert [row["carried:r"] for row in rows] == [{"v": "x"}, {"v": "y"}]
    assert [row["carried:s"] for row in rows] == ["x", "y"]


def test_names_that_collide_stay_apart(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["a"], "text": ["1"], "input.text": ["2"], "model": ["3"]})
    with prepare_table(tmp_path, table).copy as file:
        row = file.read().to_pylist()[0]
    assert row["carried:input.input.text"] == "1"
    assert row["carried:input.text"] == "2"
    assert row["carried:input.model"] == "3"


def test_files_of_a_folder_may_differ_in_the_encoding_of_a_column(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["a"], "w": ["x"]}), folder / "1.parquet")
    dictionary = pa.array(["y"]).dictionary_encode()
    pq.write_table(pa.table({"w": dictionary, "prompt": dictionary}), folder / "2.parquet")
    pq.write_table(pa.table({"prompt": ["c"], "w": pa.nulls(1)}), folder / "3.parquet")
    done = prepare_file(folder, tmp_path / "storage")
    assert [(r["line"], r["prompt"], r["carried:w"]) for r in done.rows()] == [
        (1, "a", "x"),
        (2, "y", "y"),
        (3, "c", None),
    ]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"prompt": ["b"]}, "2.parquet has no column 'w'"),
        ({"prompt": ["b"], "w": [[1]]}, "the column 'w' of .*2.parquet is list<.*int64"),
    ],
)
def test_files_of_a_folder_must_have_the_same_columns(
    tmp_path: Path, second: dict[str, list[Any]], said: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["a"], "w": [1]}), folder / "1.parquet")
    pq.write_table(pa.table(second), folder / "2.parquet")
    with pytest.raises(InputError, match=said):
        prepare_file(folder, tmp_path / "storage")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": ["a"]}, r"neither a prompt nor a messages column; it has: text \(string\)"),
    ({"prompt": [1]}, r"column 'prompt' .* is int64; it must be string \(columns: prompt"),
    ({"prompt": [b"a"]}, "column 'prompt' .* is binary; it must be string"),
    ({"messages": ["a"]}, "column 'messages' .* must be list<struct<role, content>>"),
    ({"messages": [[{"role": "a"}]]}, "column 'messages' .* must be list<struct"),
    ({"prompt": ["a"], "max_tokens": [1.0]}, "column 'max_tokens' .* is double"),
    ({"prompt": ["a"], "temperature": ["a"]}, "column 'temperature' .* is string"),
    ({"prompt": ["a"], "stop": [[1]]}, r"column 'stop' .* must be string or list<string>"),
    ({"prompt": ["a"], "custom_id": [1.5]}, "column 'custom_id' .* must be string or an integer"),
    ({"prompt": ["a"], "temprature": [1.0]}, "column 'temprature'; did you mean temperature"),
    ({"prompt": ["a"], "max_new_tokens": [1]}, "did you mean max_tokens"),
    ({"Prompt": ["a"]}, "did you mean prompt"),
    (
        {"prompt": ["a"], "typical_p": [0.5]},
        r"(?s)no row of .* can be answered.*not support typical_p",
    ),
    ({"prompt": pa.array([], pa.string())}, "has no rows"),
    ({"prompt": pa.nulls(1)}, r"(?s)no row .*row 1: prompt is null"),
]


@pytest.mark.parametrize(("columns", "said"), REFUSED)
def test_columns_that_cannot_be_used_are_refused(
    tmp_path: Path, columns: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        prepare_table(tmp_path, pa.table(columns))
    assert list((tmp_path / "storage").glob("[!.]*")) == []  # no folder of a job


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.table([["a"], ["b"]], names=["prompt", "prompt"])
    with pytest.raises(InputError, match="two columns 'prompt'"):
        prepare_table(tmp_path, table)


def test_a_prompt_column_is_used_and_the_others_are_carried(tmp_path: Path) -> None:
    table = pa.table({"question": ["why?"], "prompt": ["p"], "messages": [1]})
    done = prepare_table(tmp_path, table, prompt_column="question")
    row = done.rows()[0]
    assert (row["prompt"], row["carried:prompt"], row["carried:messages"]) == ("why?", "p", 1)
    assert "carried:question" not in row
    with pytest.raises(InputError, match=r"has no column 'answer'; it has: question \(string\)"):
        prepare_table(tmp_path, table, prompt_column="answer")


def test_a_template_reads_every_column_and_they_are_carried(tmp_path: Path) -> None:
    table = pa.table({"q": ["x", "y"], "k": [1, 2], "tags": [["a", "b"], []], "seed": [5, 6]})
    done = prepare_table(tmp_path, table, template="{{ q }}{{ k }}{{ tags|join('+') }}{{ seed }}")
    rows = done.rows()
    assert [row["prompt"] for row in rows] == ["x1a+b5", "y26"]
    assert [(row["carried:q"], row["carried:k"], row["carried:tags"]) for row in rows] == [
        ("x", 1, ["a", "b"]),
        ("y", 2, []),
    ]
    assert [row["params"] for row in rows] == [{"seed": 5}, {"seed": 6}]


def test_text_that_is_no_utf8_is_an_error_row(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(),
        3,
        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")],
    )
    done = prepare_table(tmp_path, pa.table({"prompt": broken, "x": [1, 2, 3]}))
    assert done.errors() == [(2, "invalid_utf8", "prompt")]
    assert done.rejected()[0]["x"] == 2
    assert [row["prompt"] for row in done.rows()] == ["a", "c"]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file_is_refused_in_words(tmp_path: Path, plaintext_footer: bool) -> None:
    class Keys(encryption.KmsClient):
        def __init__(self, _: Any) -> None:
            super().__init__()

        def wrap_key(self, key: bytes, _: str) -> bytes:
            return key

    properties = encryption.CryptoFactory(Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(),
        encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"k": ["x"]}, plaintext_footer=plaintext_footer
        ),
    )
    path = tmp_path / "a.parquet"
    table = pa.table({"prompt": ["a"], "x": ["b"]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match=r"a\.parquet is encrypted, and pagemill has no key"):
        prepare_file(path, tmp_path / "storage")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_a_torn_file_is_refused(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"prompt": ["a"] * 1000}), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        prepare_file(path, tmp_path / "storage")


def test_batches_are_small_where_rows_are_big(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "BLOCK_BYTES", 10_000)
    path = tmp_path / "a.parquet"
    texts = [f"{i:05d}" * 200 for i in range(100)]
    table = pa.table({"prompt": texts})
    pq.write_table(table, path, use_dictionary=False, compression="none", row_group_size=50)
    with open_input(str(path), PromptRules()) as reader:
        blocks = list(reader.blocks())
    assert max(len(block.rows) for block in blocks) <= 10
    assert [row.prompt for block in blocks for row in block.rows] == [t.encode() for t in texts]
    assert [row.line for block in blocks for row in block.rows] == list(range(1, 101))
