"""Output rows as files for people and programs."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import StorageError, UsageError
from jobs.export import export_file, export_stream, json_lines
from jobs.formats import Format, format_of
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

    assert export_file(Rows(TABLE, TABLE), path, Format.JSONL) == 4

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

    assert export_file(Rows(TABLE, TABLE), path, Format.PARQUET) == 4

    assert pq.read_table(path).equals(pa.concat_tables([TABLE, TABLE]))


def test_no_rows_give_a_valid_file(tmp_path: Path) -> None:
    assert export_file(Rows(TABLE.slice(0, 0)), tmp_path / "a.parquet", Format.PARQUET) == 0
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 0
    assert export_file(Rows(TABLE.slice(0, 0)), tmp_path / "a.jsonl", Format.JSONL) == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b""


def test_parquet_can_be_written_to_a_pipe() -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as stream:
        export_stream(Rows(TABLE), stream, Format.PARQUET)
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
    for form in Format:
        with pytest.raises(StorageError, match="gone"):
            export_file(Broken(TABLE), path, form)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_or_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        export_file(Rows(TABLE), tmp_path, Format.JSONL)
    with pytest.raises(StorageError, match=r"cannot write .*No such file or directory"):
        export_file(Rows(TABLE), tmp_path / "none" / "out.jsonl", Format.JSONL)


def test_devices_and_links_are_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target.jsonl"
    target.write_text("old")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)

    export_file(Rows(TABLE), Path(os.devnull), Format.JSONL)
    export_file(Rows(TABLE), link, Format.JSONL)

    assert Path(os.devnull).is_char_device()
    assert link.is_symlink()
    assert target.read_text().count("\n") == 2


def test_extra_keys_of_jsonl_rows_are_objects_again() -> None:
    assert as_json(input=pa.array(['{"a": [1, {"b": null}]}']))["input"] == {"a": [1, {"b": None}]}
    assert as_json(input=pa.array([None], pa.string()))["input"] is None


@pytest.mark.parametrize("text", ["plain", "{broken", "12", '"x"'])
def test_a_column_called_input_that_holds_other_text_is_text(text: str) -> None:
    assert as_json(input=pa.array([text]))["input"] == text


def test_carried_columns_keep_their_own_types() -> None:
    moment = datetime.datetime(2030, 1, 31, 8, 0, tzinfo=datetime.UTC)
    row = as_json(
        whole=pa.array([2**63 - 1]),
        real=pa.array([1.5]),
        nan=pa.array([float("nan")]),
        infinite=pa.array([float("inf")]),
        half=pa.array([0.5], pa.float16()),
        truth=pa.array([True]),
        binary=pa.array([b"\x00\xff"]),
        decimal=pa.array([decimal.Decimal("1.10")]),
        day=pa.array([moment.date()]),
        moment=pa.array([moment], pa.timestamp("us", "UTC")),
        naive=pa.array([moment.replace(tzinfo=None)], pa.timestamp("s")),
        seconds=pa.array([datetime.timedelta(seconds=90)]),
        list=pa.array([[1.0, float("nan")]]),
        struct=pa.array([{"when": moment, "raw": b"\x01"}]),
        map=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        category=pa.array(["red"]).dictionary_encode(),
    )

    assert row == {
        "whole": 2**63 - 1,
        "real": 1.5,
        "nan": None,
        "infinite": None,
        "half": 0.5,
        "truth": True,
        "binary": "AP8=",
        "decimal": "1.10",
        "day": "2030-01-31",
        "moment": "2030-01-31T08:00:00+00:00",
        "naive": "2030-01-31T08:00:00",
        "seconds": 90.0,
        "list": [1.0, None],
        "struct": {"when": "2030-01-31T08:00:00+00:00", "raw": "AQ=="},
        "map": {"k": 1},
        "category": "red",
    }


@pytest.mark.parametrize("wrap", [pa.list_, pa.large_list, lambda kind: kind])
def test_nanoseconds_are_cut_to_microseconds(wrap: Any) -> None:
    kind = pa.struct([("t", pa.timestamp("ns"))])
    value = {"t": 1_893_456_000_123_456_789}
    column = pa.array([value] if wrap(kind) == kind else [[value]], wrap(kind))

    row = as_json(x=column, clock=pa.array([1_234_567], pa.time64("ns")))

    found = row["x"] if wrap(kind) == kind else row["x"][0]
    assert found == {"t": "2030-01-01T00:00:00.123456"}
    assert row["clock"] == "00:00:00.001234"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.parquet", Format.PARQUET),
        ("a.PQ", Format.PARQUET),
        ("a.jsonl", Format.JSONL),
        ("a.ndjson", Format.JSONL),
        ("a.csv", None),
        ("a", None),
    ],
)
def test_the_format_by_the_name(name: str, form: Format | None) -> None:
    assert format_of(Path(name)) is form
