"""The normalized copy: one row group a chunk, windows, refused rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import layout
from jobs.job_folder import JobFolder
from jobs.normalize import NormalizedWriter
from jobs.reading.blocks import Block
from jobs.records import ErrorTally, Plan, RowErrorInfo
from jobs.rows import Row
from jobs.schema import CARRIED_PREFIX, NORMALIZED, OUTPUT
from jobs.storage import Storage

CARRIED = pa.field(CARRIED_PREFIX + "tag", pa.int64())


def block(rows: list[Row], first: int) -> Block:
    tags = pa.array([first + i for i in range(len(rows))], pa.int64())
    return Block(rows, pa.RecordBatch.from_arrays([tags], schema=pa.schema([CARRIED])))


def write(folder: JobFolder, blocks: list[list[Row]], **options: int) -> Plan:
    with (
        folder.create(layout.input_copy(1)) as file,
        NormalizedWriter(file, folder, carried=[CARRIED], model="tiny", **options) as writer,
    ):
        first = 0
        for rows in blocks:
            writer.add(block(rows, first))
            first += len(rows)
        return writer.finish()


def prompt(i: int, text: str) -> Row:
    return Row(line=2 * i + 1, custom_id=f"id-{i}", prompt=text.encode())


CHAT = Row(1, messages=b'[{"role":"user","content":"a"}]', chat=b'{"tools":[]}')


def bad(i: int) -> Row:
    error = RowErrorInfo("invalid_json", "not JSON", 2 * i + 1, "messages[0]")
    return Row(line=2 * i + 1, custom_id=f"id-{i}", error=error)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.sampled_from(["", "a", "b", "ab", "c"]), min_size=1, max_size=40),
    chunk_rows=st.integers(1, 7),
    window_rows=st.integers(1, 15),
    window_bytes=st.sampled_from([1, 60, 1 << 20]),
    block_rows=st.integers(1, 20),
)
def test_every_row_is_in_its_window_once(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[str],
    chunk_rows: int,
    window_rows: int,
    window_bytes: int,
    block_rows: int,
) -> None:
    """An empty text stands for a refused row."""
    folder = Storage(str(tmp_path_factory.mktemp("s"))).new_job("job")
    given_rows = [prompt(i, text) if text else bad(i) for i, text in enumerate(rows)]
    blocks = [given_rows[i : i + block_rows] for i in range(0, len(rows), block_rows)]
    plan = write(
        folder,
        blocks,
        chunk_rows=chunk_rows,
        window_rows=window_rows,
        window_bytes=window_bytes,
    )

    assert plan.total_rows == len(rows)
    assert plan.rejected == rows.count("")
    assert [chunk.ordinal for chunk in plan.chunks] == list(range(len(plan.chunks)))
    assert [window.ordinal for window in plan.windows] == list(range(len(plan.windows)))
    first = 0
    for window in plan.windows:
        assert window.first_row == first
        assert 1 <= window.rows <= window_rows
        first += window.rows
    assert first == len(rows)

    found: dict[int, tuple[int, str, str | None, int]] = {}
    with pq.ParquetFile(folder.at(plan.input_path)) as file:
        assert file.num_row_groups == len(plan.chunks)
        for chunk in plan.chunks:
            group = file.read_row_group(chunk.ordinal).to_pylist()
            assert len(group) == chunk.rows <= chunk_rows
            window = plan.windows[chunk.window]
            for row in group:
                index = row["row_index"]
                assert window.first_row <= index < window.first_row + window.rows
                assert index not in found
                found[index] = (row["line"], row["custom_id"], row["prompt"], row["carried:tag"])
    for window in plan.windows:
        if window.rejected is not None:
            for row in pq.read_table(folder.at(window.rejected)).to_pylist():
                index = row["row_index"]
                assert window.first_row <= index < window.first_row + window.rows
                assert index not in found
                found[index] = (row["error"]["line"], row["custom_id"], "", row["tag"])
    assert found == {i: (2 * i + 1, f"id-{i}", text, i) for i, text in enumerate(rows)}


@pytest.mark.quick
def test_rows_of_a_window_are_in_the_order_of_prefixes(tmp_path: Path) -> None:
    folder = Storage(str(tmp_path)).new_job("job")
    rows = [prompt(i, text) for i, text in enumerate(["b1", "a1", "b2", "a2", "c"])]
    plan = write(folder, [rows], chunk_rows=2, window_rows=4)
    with pq.ParquetFile(folder.at(plan.input_path)) as file:
        groups = [file.read_row_group(i)["prompt"].to_pylist() for i in range(3)]
    assert groups == [["a1", "a2"], ["b1", "b2"], ["c"]]


@pytest.mark.quick
def test_the_schemas(tmp_path: Path) -> None:
    folder = Storage(str(tmp_path)).new_job("job")
    plan = write(folder, [[prompt(0, "a"), bad(1)]], chunk_rows=8)
    assert pq.read_schema(folder.at(plan.input_path)) == pa.schema([*NORMALIZED, CARRIED])
    path = plan.windows[0].rejected
    assert path == layout.rejected_part(1, 0)
    assert pq.read_schema(folder.at(path)) == pa.schema([*OUTPUT, CARRIED.with_name("tag")])
    assert pq.read_table(folder.at(path)).to_pylist() == [
        {
            "row_index": 1,
            "custom_id": "id-1",
            "text": None,
            "finish_reason": "error",
            "prompt_tokens": 0,
            "cached_tokens": 0,
            "completion_tokens": 0,
            "error": {
                "code": "invalid_json",
                "message": "not JSON",
                "line": 3,
                "field": "messages[0]",
            },
            "model": "tiny",
            "seed": None,
            "endpoint": None,
            "choices": None,
            "logprobs": None,
            "prompt_logprobs": None,
            "tag": 1,
        }
    ]


def wrong(i: int, code: str, message: str = "x") -> Row:
    return Row(line=i + 10, error=RowErrorInfo(code, message, i + 10, f"field-{i}"))


@pytest.mark.quick
def test_errors_are_counted_by_their_code_with_the_first_as_example(tmp_path: Path) -> None:
    folder = Storage(str(tmp_path)).new_job("job")
    codes = ["b", "", "a", "b", "a", "b", "", "c"]
    rows = [wrong(i, code) if code else prompt(i, "x") for i, code in enumerate(codes)]
    rows.append(wrong(8, "d", "m" * 10_000))
    plan = write(folder, [rows[:3], rows[3:]], chunk_rows=8, window_rows=4)
    tallies = {tally.code: tally for tally in plan.rejected_errors}
    assert tallies["a"] == ErrorTally("a", 2, 2, 12, "field-2", "x")
    assert tallies["b"] == ErrorTally("b", 3, 0, 10, "field-0", "x")
    assert tallies["c"] == ErrorTally("c", 1, 7, 17, "field-7", "x")
    assert tallies["d"].rows == 1
    assert len(tallies["d"].message) == 500
    assert sum(tally.rows for tally in tallies.values()) == plan.rejected
    assert len(tallies) == len(plan.rejected_errors)


@pytest.mark.quick
def test_it_knows_whether_there_are_chats(tmp_path: Path) -> None:
    for rows, chats in (([prompt(0, "a"), bad(1)], False), ([prompt(0, "a"), CHAT], True)):
        folder = Storage(str(tmp_path)).new_job(str(chats))
        with folder.create("copy") as file:
            writer = NormalizedWriter(file, folder, carried=[], model="m", chunk_rows=1)
            with writer:
                writer.add(Block(rows, None))
                writer.finish()
        assert writer.has_chats is chats


@pytest.mark.quick
def test_what_the_template_gets_beside_the_messages_is_written(tmp_path: Path) -> None:
    folder = Storage(str(tmp_path)).new_job("job")
    plan = write(folder, [[CHAT, prompt(1, "a")]], chunk_rows=8)
    with pq.ParquetFile(folder.at(plan.input_path)) as file:
        assert file.read()["chat"].to_pylist() == ['{"tools":[]}', None]


@pytest.mark.quick
def test_a_window_of_refused_rows_has_no_chunks(tmp_path: Path) -> None:
    folder = Storage(str(tmp_path)).new_job("job")
    plan = write(folder, [[bad(0), bad(1), prompt(2, "a")]], chunk_rows=8, window_rows=2)
    assert [chunk.window for chunk in plan.chunks] == [1]
    assert [window.rejected is not None for window in plan.windows] == [True, False]
    assert (plan.total_rows, plan.rejected) == (3, 2)
