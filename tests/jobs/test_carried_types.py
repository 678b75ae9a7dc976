"""Carried columns of every type, and files of a folder whose types differ."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import InputError
from tests.support.submissions import Prepared, prepare_file, prepare_table

pytestmark = pytest.mark.quick

NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
DAY = NOON.replace(tzinfo=None)
MOMENT = pa.timestamp("us", "Europe/Zurich")
ZURICH = pa.scalar(NOON, MOMENT).as_py()
NEVER_NULL = pa.list_(pa.field("element", pa.int64(), nullable=False))


def carried(done: Prepared) -> list[Any]:
    return [row["carried:x"] for row in done.rows()]


def from_folder(tmp_path: Path, *tables: pa.Table) -> Prepared:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return prepare_file(folder, tmp_path / "storage")


def column(values: pa.Array) -> pa.Table:
    return pa.table({"prompt": ["a"] * len(values), "x": values})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.string_view(), 2), [["a", None], None, ["b" * 20, ""]]),
        (pa.map_(pa.string_view(), pa.string_view()), [[("a", "b" * 20)], None, [("", None)]]),
        (pa.map_(pa.string(), pa.list_view(pa.int8())), [[("a", [1])], None, [("b", None)]]),
        (pa.list_(pa.list_view(pa.string_view())), [[["a"], None], None, []]),
        (NEVER_NULL, [[1], [], [2, 3]]),
    ],
    ids=str,
)
def test_what_arrow_cannot_reorder_is_carried_in_another_form(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    assert carried(prepare_table(tmp_path, column(pa.array(values, kind)))) == values


def test_extensions_of_views_are_carried_too(tmp_path: Path) -> None:
    texts = ['{"a": 1}', None]
    for number, kind in enumerate(
        (pa.json_(pa.string_view()), pa.opaque(pa.string_view(), "type", "vendor"))
    ):
        storage = pa.array(texts, pa.string_view())
        table = column(pa.ExtensionArray.from_storage(kind, storage))
        done = prepare_table(tmp_path / str(number), table)
        with done.copy as file:
            found = file.schema_arrow.field("carried:x").type
        assert carried(done) == texts
        assert found.extension_name == kind.extension_name


def test_dictionaries_of_many_row_groups_fit_into_one(tmp_path: Path) -> None:
    values = [f"v{n}" for n in range(600)]
    path = tmp_path / "in.parquet"
    for indices in (pa.int8(), pa.uint8()):
        kind = pa.dictionary(indices, pa.string())
        nested = pa.list_(kind)
        schema = pa.schema([("prompt", pa.string()), ("x", kind), ("y", nested)])
        with pq.ParquetWriter(path, schema) as writer:
            for start in range(0, len(values), 100):
                part = values[start : start + 100]
                # Prompts that are sorted otherwise mix the row groups in each chunk.
                prompts = [f"{n:03}" for n in range(100)]
                columns = [prompts, pa.array(part, kind), pa.array([[v] for v in part], nested)]
                writer.write_table(pa.table(columns, schema=schema))

        done = prepare_file(path, tmp_path / "storage", chunk_rows=50)

        assert carried(done) == values
        assert [row["carried:y"] for row in done.rows()] == [[value] for value in values]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (pa.array([1]), pa.array([2], pa.int8()), 2),
        (pa.array([1.5]), pa.array([2]), 2.0),
        (pa.array([1.5]), pa.array([0.5], pa.float32()), 0.5),
        (pa.array(["a"], pa.large_string()), pa.array(["b"]), "b"),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), "b"),
        (pa.array([[1]]), pa.array([[2, None]], pa.large_list(pa.int8())), [2, None]),
        (pa.array([{"a": 1, "b": 2}]), pa.array([{"b": 3}]), {"a": None, "b": 3}),
        (pa.array([DAY], pa.timestamp("us")), pa.array([DAY], pa.timestamp("ms")), DAY),
        (pa.array([Decimal("1.25")]), pa.array([Decimal("2.5")]), Decimal("2.50")),
        (pa.array([[1]], NEVER_NULL), pa.array([[None, 2]]), [None, 2]),
        (
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("b", 2)]], pa.map_(pa.string(), pa.int8())),
            [("b", 2)],
        ),
    ],
    ids=str,
)
def test_files_of_a_folder_may_store_the_same_in_another_form(
    tmp_path: Path, first: pa.Array, second: pa.Array, found: Any
) -> None:
    done = from_folder(tmp_path, column(first), column(second))
    assert carried(done) == [*first.to_pylist(), found]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1]), pa.array(["007"])),
        (pa.array([1]), pa.array([1.5])),
        (pa.array([1]), pa.array([True])),
        (pa.array([1], pa.int8()), pa.array([300])),
        (pa.array([True]), pa.array([5])),
        (pa.array([1.5]), pa.array(["1.50"])),
        (pa.array([1.5]), pa.array([2**53 + 1])),
        (pa.array([1.5], pa.float32()), pa.array([0.1])),
        (pa.array([1.5], pa.float16()), pa.array([2049])),
        (pa.array(["a"]), pa.array([7])),
        (pa.array(["a"]), pa.array([b"\xff"])),
        (pa.array([DAY]), pa.array(["2020-01-01"])),
        (pa.array([DAY]), pa.array([ZURICH], MOMENT)),
        (pa.array([ZURICH], MOMENT), pa.array([DAY])),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([DAY.date()]), pa.array([DAY])),
        (pa.array([DAY.date()]), pa.array([5], pa.int32())),
        (pa.array([Decimal("1.1")]), pa.array([1.15])),
        (pa.array([Decimal("1.1")]), pa.array([Decimal("1.15")])),
        (pa.array([[1]]), pa.array([[1.5]])),
        (pa.array([{"a": 1}]), pa.array([{"a": 1, "b": 2}])),
        (pa.array([1]).dictionary_encode(), pa.array(["7"])),
        (
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("a", 1.5)]], pa.map_(pa.string(), pa.float64())),
        ),
    ],
    ids=str,
)
def test_no_value_becomes_another_to_fit_the_first_file(
    tmp_path: Path, first: pa.Array, second: pa.Array
) -> None:
    with pytest.raises(InputError, match=r"the column 'x' of .*1.parquet is .*, but .* in the fi"):
        from_folder(tmp_path, column(first), column(second))


def test_no_column_of_a_later_file_is_left_out(tmp_path: Path) -> None:
    first = column(pa.array([1]))
    hotter = first.append_column("temperature", pa.array([1.0]))
    with pytest.raises(InputError, match=r"1\.parquet has a column 'temperature', which the first"):
        from_folder(tmp_path, first, hotter)


def test_two_columns_of_one_name_in_a_later_file_are_refused(tmp_path: Path) -> None:
    first = column(pa.array([1]))
    with pytest.raises(InputError, match=r"1\.parquet has two columns 'x'; rename one"):
        from_folder(tmp_path, first, first.append_column("x", pa.array([2])))


@pytest.mark.parametrize("name", ["c", "b.c"])
def test_names_with_dots_are_no_paths(tmp_path: Path, name: str) -> None:
    texts = [f"{n:05}" * 20 for n in range(2000)]  # so many that their dictionary is looked at
    kind = pa.struct([(name, pa.string())])
    values = [{name: text} for text in texts]
    table = column(pa.array(values, kind)).append_column("x.b", pa.array(texts))
    done = prepare_table(tmp_path, table)
    assert carried(done) == values
    assert [row["carried:x.b"] for row in done.rows()] == texts
