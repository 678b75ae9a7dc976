"""Output rows as files for people and programs."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from jobs.errors import StorageError, UsageError
from jobs.export import export_file, export_stream
from jobs.formats import OutputFormat, format_of
from jobs.json_rows import json_lines
from jobs.json_values import json_values
from jobs.records import Choice, JobRecord, RowResult, TokenLogprob, TopLogprob
from jobs.result_table import result_table
from jobs.schema import ERROR

pytestmark = pytest.mark.quick

TABLE = pa.table(
    {
        "row_index": [0, 1],
        "text": ["é\n", None],
        "error": pa.array([None, {"code": "x", "message": "y", "line": 2, "field": None}], ERROR),
    }
)


class Rows:
    """Output rows from memory."""

    job: JobRecord
    version = 1

    def __init__(self, *tables: pa.Table) -> None:
        self.tables = tables
        self.schema = tables[0].schema

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        yield from self.tables


def as_json(**columns: pa.Array) -> dict[str, Any]:
    (line,) = json_lines(pa.table(columns))
    value: dict[str, Any] = json.loads(line)
    return value


def test_jsonl_has_one_object_a_row_with_its_error_or_null(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"

    assert export_file(Rows(TABLE, TABLE), path, OutputFormat.JSONL) == 4

    lines = path.read_text("utf-8").splitlines()
    assert len(lines) == 4
    assert json.loads(lines[0]) == {"row_index": 0, "text": "é\n", "error": None}
    assert json.loads(lines[1])["error"] == {
        "code": "x",
        "message": "y",
        "line": 2,
        "field": None,
    }


def test_parquet_is_one_file_with_the_types_of_the_output(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"

    assert export_file(Rows(TABLE, TABLE), path, OutputFormat.PARQUET) == 4

    assert pq.read_table(path).equals(pa.concat_tables([TABLE, TABLE]))


def as_csv(*tables: pa.Table) -> list[list[str]]:
    stream = io.BytesIO()
    export_stream(Rows(*tables), stream, OutputFormat.CSV)
    return list(csv.reader(io.StringIO(stream.getvalue().decode(), newline="")))


def test_csv_has_a_head_and_a_record_a_row(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"

    assert export_file(Rows(TABLE, TABLE), path, OutputFormat.CSV) == 4

    records = '0,"é\n",,,,\n1,,x,y,2,\n'
    head = "row_index,text,error.code,error.message,error.line,error.field\n"
    assert path.read_text("utf-8") == head + records * 2


def test_csv_of_every_kind_of_value() -> None:
    awkward = ["", None, 'a "b"', "a,b", "\r\n", " a ", "é漢🙂", "=1+1"]
    number = len(awkward)
    table = pa.table(
        {
            "text": awkward,
            'a "name", with': [True, False, None, *[True] * (number - 3)],
            "floats": pa.array([1.5, float("nan"), float("inf"), 1e-9, None, 2, 3, 4]),
            "lists": [[1, None], [], None, *[[2]] * (number - 3)],
            "structs": pa.array([{"a": 'x,"y"'}] * number),
            "days": pa.array([datetime.date(2030, 1, 31)] * number),
            "error": pa.array([None] * number, ERROR),
            "error.code": ["mine"] * number,
        }
    )

    head, *records = as_csv(table)

    assert head[:2] == ["text", 'a "name", with']
    assert head[-5:] == [
        "error.code", "error.message", "error.line", "error.field", "input.error.code",
    ]  # fmt: skip
    assert [record[0] for record in records] == [text or "" for text in awkward]
    assert records[0][1:6] == ["true", "1.5", "[1,null]", '{"a":"x,\\"y\\""}', "2030-01-31"]
    assert records[1][1:4] == ["false", "nan", "[]"]
    assert records[2][1:4] == ["", "inf", ""]
    assert {record[-1] for record in records} == {"mine"}
    # Readers that tell null from an empty text do.
    stream = io.BytesIO()
    export_stream(Rows(table), stream, OutputFormat.CSV)
    read = pa_csv.read_csv(
        io.BytesIO(stream.getvalue()),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    assert read["text"].to_pylist() == awkward


def test_no_two_columns_of_a_csv_have_one_name() -> None:
    table = pa.table(
        {
            "error": pa.array([None], ERROR),
            "error.code": ["a"],
            "input.error.code": ["b"],
            "error.line": ["c"],
        }
    )
    head, record = as_csv(table)
    assert head[4:] == ["input.input.error.code", "input.error.code", "input.error.line"]
    assert record[4:] == ["a", "b", "c"]


def test_no_rows_give_a_valid_file(tmp_path: Path) -> None:
    assert export_file(Rows(TABLE.slice(0, 0)), tmp_path / "a.parquet", OutputFormat.PARQUET) == 0
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 0
    assert export_file(Rows(TABLE.slice(0, 0)), tmp_path / "a.jsonl", OutputFormat.JSONL) == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b""
    assert as_csv(TABLE.slice(0, 0)) == [
        ["row_index", "text", "error.code", "error.message", "error.line", "error.field"]
    ]


def test_parquet_can_be_written_to_a_pipe() -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as stream:
        export_stream(Rows(TABLE), stream, OutputFormat.PARQUET)
    with open(reader, "rb") as stream:
        content = stream.read()

    assert pq.read_table(io.BytesIO(content)).equals(TABLE)


def test_a_file_is_replaced_at_the_end_or_not_at_all(tmp_path: Path) -> None:
    class Broken(Rows):
        def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
            yield TABLE
            raise StorageError("gone")

    path = tmp_path / "out.jsonl"
    path.write_text("old")
    for form in (OutputFormat.PARQUET, OutputFormat.JSONL):
        with pytest.raises(StorageError, match="gone"):
            export_file(Broken(TABLE), path, form)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_or_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        export_file(Rows(TABLE), tmp_path, OutputFormat.JSONL)
    with pytest.raises(StorageError, match=r"cannot write .*No such file or directory"):
        export_file(Rows(TABLE), tmp_path / "none" / "out.jsonl", OutputFormat.JSONL)


def test_devices_and_links_are_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target.jsonl"
    target.write_text("old")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)

    export_file(Rows(TABLE), Path(os.devnull), OutputFormat.JSONL)
    export_file(Rows(TABLE), link, OutputFormat.JSONL)

    assert Path(os.devnull).is_char_device()
    assert link.is_symlink()
    assert target.read_text().count("\n") == 2


def test_extra_keys_of_jsonl_rows_are_objects_again() -> None:
    assert as_json(input=pa.array(['{"a": [1, {"b": null}]}']))["input"] == {"a": [1, {"b": None}]}
    assert as_json(input=pa.array([None], pa.string()))["input"] is None


def test_extra_keys_with_line_breaks_end_no_row() -> None:
    texts = ['{\n  "a": "b\\nc"\r\n}', '{"a":\r1}', '{"n": 123456789012345678901234567890}']
    lines = list(json_lines(pa.table({"input": texts})))
    assert [line.count(b"\n") + line.count(b"\r") for line in lines] == [1, 1, 1]
    assert [json.loads(line)["input"] for line in lines] == [json.loads(text) for text in texts]


def test_nothing_in_a_row_ends_its_line_for_whoever_reads_lines() -> None:
    breaks = "".join(c for c in map(chr, range(0x110000)) if len(f"a{c}b".splitlines()) > 1)
    assert {"\n", "\x85", "\u2028", "\u2029"} <= set(breaks)
    text = f"a{breaks}b\u0084\u2027é"  # and their neighbours
    table = pa.table({"text": [text], "input": [json.dumps({text: text}, ensure_ascii=False)]})
    (line,) = json_lines(table)
    assert line.decode().splitlines() == [line.decode().removesuffix("\n")]
    assert json.loads(line) == {"text": text, "input": {text: text}}


@pytest.mark.parametrize("text", ["plain", "{broken", "12", '"x"'])
def test_a_column_called_input_that_holds_other_text_is_text(text: str) -> None:
    assert as_json(input=pa.array([text]))["input"] == text


def test_bytes_of_tokens_are_integers_and_those_of_others_base64() -> None:
    token = TokenLogprob(5, "é", "é".encode(), -0.5, (TopLogprob(6, "x", -1.5),))
    choices = (Choice("é", "stop", 1, (token,)), Choice("", "stop", 1))
    rows = result_table([RowResult(0, "é", "stop", choices=choices, logprobs=(token,))])
    rows = rows.append_column("mine", pa.array([b"\x00\xff"]))

    row = json.loads(next(json_lines(rows)))

    shown = {
        "token_id": 5, "token": "é", "bytes": [195, 169], "logprob": -0.5,
        "top": [{"token_id": 6, "token": "x", "logprob": -1.5}],
    }  # fmt: skip
    assert row["logprobs"] == row["choices"][0]["logprobs"] == [shown]
    assert row["choices"][1]["logprobs"] is None
    assert row["mine"] == "AP8="


def test_a_column_without_a_form_in_json_is_named() -> None:
    twice = pa.struct([("a", pa.int8()), ("a", pa.int8())])
    with pytest.raises(UsageError, match=r"column 'odd' \(struct.*two fields of one name.*Parquet"):
        as_json(fine=pa.array([1]), odd=pa.array([None], twice))


def test_a_column_that_is_nested_too_deep_for_json_is_named(tmp_path: Path) -> None:
    column = pa.array([1])
    for _ in range(300):
        column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    with pytest.raises(UsageError, match="column 'deep'"):
        export_file(
            Rows(pa.table({"fine": [1], "deep": column})), tmp_path / "a.jsonl", OutputFormat.JSONL
        )
    assert list(tmp_path.iterdir()) == []


def test_few_rows_are_objects_at_once_where_rows_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(column: pa.Array, **options: Any) -> list[Any]:
        sizes.append(column.nbytes)
        return json_values(column, **options)

    sizes: list[int] = []
    monkeypatch.setattr("jobs.json_rows.json_values", convert)
    table = pa.table({"text": ["x" * 300_000] * 40})

    assert len(list(json_lines(table))) == 40
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.parquet", OutputFormat.PARQUET),
        ("a.PQ", OutputFormat.PARQUET),
        ("a.jsonl", OutputFormat.JSONL),
        ("a.ndjson", OutputFormat.JSONL),
        ("a.csv", OutputFormat.CSV),
        ("a.xlsx", None),
        ("a", None),
    ],
)
def test_the_format_by_the_name(name: str, form: OutputFormat | None) -> None:
    assert format_of(Path(name)) is form
