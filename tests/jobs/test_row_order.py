"""Putting the rows of a window into row order."""

from __future__ import annotations

import itertools
import random
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import row_order
from jobs.errors import OutputError
from jobs.records import WindowSpec
from jobs.row_order import RowOrder

# What pandas takes is not ours, and Arrow would load it.
ALONE = """
import sys
from pathlib import Path
from tests.support.without_pandas import hide_pandas
hide_pandas()
from tests.jobs.test_row_order import _sort_much
_sort_much(Path(sys.argv[1]))
"""
SCHEMA = pa.schema([("row_index", pa.int64()), ("text", pa.string())])


def rows(*indices: int) -> pa.Table:
    return pa.table(
        {"row_index": list(indices), "text": [f"text {i}" for i in indices]}, schema=SCHEMA
    )


def window(first: int, number: int) -> WindowSpec:
    return WindowSpec(0, first, number)


@pytest.mark.quick
def test_rows_come_back_in_row_order(tmp_path: Path) -> None:
    with RowOrder(tmp_path, SCHEMA, window(10, 5)) as order:
        order.add(rows(14, 10), "a")
        order.add(rows(12), "b")

        assert order.missing() == [11, 13]
        (group,) = order.groups()
    assert group.equals(rows(10, 12, 14))


@pytest.mark.quick
def test_no_rows_give_no_groups(tmp_path: Path) -> None:
    with RowOrder(tmp_path, SCHEMA, window(0, 3)) as order:
        order.add(rows(), "a")
        assert list(order.groups()) == []


@pytest.mark.quick
def test_nothing_is_left_in_the_scratch_folder(tmp_path: Path) -> None:
    with RowOrder(tmp_path, SCHEMA, window(0, 1)) as order:
        order.add(rows(0), "a")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.quick
@pytest.mark.parametrize("twice", [rows(1), rows(2, 2)])
def test_a_row_that_is_there_twice_is_refused(tmp_path: Path, twice: pa.Table) -> None:
    with RowOrder(tmp_path, SCHEMA, window(0, 3)) as order:
        order.add(rows(0, 1), "first.parquet")
        with pytest.raises(OutputError, match=r"row [12] is there twice: in .*second\.parquet"):
            order.add(twice, "second.parquet")


@pytest.mark.quick
@pytest.mark.parametrize("row", [9, 13, -1])
def test_a_row_of_another_window_is_refused(tmp_path: Path, row: int) -> None:
    with (
        RowOrder(tmp_path, SCHEMA, window(10, 3)) as order,
        pytest.raises(OutputError, match=r"part\.parquet is not of window 0 \(rows 10 to 12\)"),
    ):
        order.add(rows(row), "part.parquet")


@pytest.mark.quick
def test_rows_that_are_known_or_skipped_are_left_out(tmp_path: Path) -> None:
    with RowOrder(tmp_path, SCHEMA, window(0, 4)) as order:
        order.add(rows(1), "a")
        (batch,) = rows(0, 1, 2, 3).to_batches()

        assert order.without_known(batch, {3}).column("row_index").to_pylist() == [0, 2]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_order_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, 2**40))
    indices = data.draw(st.lists(st.integers(0, 299), unique=True, max_size=300))
    cuts = data.draw(st.lists(st.integers(0, len(indices)), max_size=6).map(sorted))
    bounds = [0, *cuts, len(indices)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_order, "GROUP_ROWS", data.draw(st.sampled_from([1, 7, 4096])))
        with RowOrder(tmp_path_factory.mktemp("order"), SCHEMA, window(first, 300)) as order:
            for start, end in itertools.pairwise(bounds):
                order.add(rows(*(first + i for i in indices[start:end])), "a")
            groups = list(order.groups())

    expected = rows(*(first + i for i in sorted(indices)))
    assert pa.concat_tables(groups or [rows()]).combine_chunks().equals(expected)
    assert all(group.num_rows <= row_order.GROUP_ROWS for group in groups)


@pytest.mark.quick
def test_types_of_all_kinds_survive(tmp_path: Path) -> None:
    kinds = {
        "dictionary": pa.array(["a", "b"]).dictionary_encode(),
        "struct": pa.array(
            [None, {"code": "x"}], pa.struct([pa.field("code", pa.string(), False)])
        ),
        "list": pa.array([[1], None]),
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "large": pa.array(["x", None], pa.large_string()),
        "null": pa.nulls(2),
    }
    table = pa.table({"row_index": [1, 0], **kinds})
    other = table.slice(0, 1).set_column(0, "row_index", pa.array([2]))
    other = other.set_column(1, "dictionary", pa.array(["other"]).dictionary_encode())

    with RowOrder(tmp_path, table.schema, window(0, 3)) as order:
        order.add(table, "a")
        order.add(other, "b")
        (group,) = order.groups()

    assert group.to_pylist() == [*reversed(table.to_pylist()), *other.to_pylist()]


def test_memory_is_bounded_by_a_group_not_by_the_window(tmp_path: Path) -> None:
    """600 MB of rows, in an order that touches every batch for each group."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip

    anonymous, rows_seen = map(int, done.stdout.split())
    assert rows_seen == 60_000
    assert anonymous < 250 << 20


def _sort_much(scratch: Path) -> None:
    """Sort in a process of its own; print its anonymous memory at most, and the rows."""
    order_of_rows = list(range(60_000))
    random.Random(1).shuffle(order_of_rows)
    most = seen = 0
    with RowOrder(scratch, SCHEMA, window(0, 60_000)) as order:
        for start in range(0, 60_000, 200):
            indices = order_of_rows[start : start + 200]
            texts = [f"{i:05d}" * 2000 for i in indices]
            order.add(pa.table({"row_index": indices, "text": texts}, schema=SCHEMA), "a")
        for group in order.groups():
            assert group["row_index"].to_pylist() == list(range(seen, seen + group.num_rows))
            seen += group.num_rows
            most = max(most, _anonymous_memory())
    print(most, seen)


def _anonymous_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
