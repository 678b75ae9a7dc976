"""The spool: whatever was written down is found again, and nothing else."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.job_folder import JobFolder
from jobs.records import RowErrorInfo, RowResult
from jobs.result_table import result_table
from jobs.schema import RESULT
from jobs.spool import BATCH_ROWS, SpoolWriter, read_spool
from jobs.storage import Storage

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return Storage(str(tmp_path)).new_job("job")


def write(folder: JobFolder, epoch: int, *results: RowResult, mark: str = "f") -> None:
    SpoolWriter(folder, "c", epoch, mark).write(result_table(results))


def found(folder: JobFolder, mark: str | None, **more: Any) -> dict[int, dict[str, Any]]:
    """Spooled rows by number; no row is there twice."""
    rows = read_spool(folder, "c", mark, **more).to_pylist()
    by_index = {row["row_index"]: row for row in rows}
    assert len(by_index) == len(rows)
    return by_index


def plain(*results: RowResult) -> dict[int, dict[str, Any]]:
    return {row["row_index"]: row for row in result_table(results).to_pylist()}


def answer(row: int, text: str = "yes") -> RowResult:
    return RowResult(row, text, "stop", 5, 4, 3, seed=2**62)


def test_segments_of_all_leases_are_read(folder: JobFolder) -> None:
    failed = RowResult(2, finish_reason="error", error=RowErrorInfo("nan_logits", "no", 3, "x"))
    write(folder, 1, answer(0), answer(1))
    write(folder, 2, failed)
    SpoolWriter(folder, "other", 1, "f").write(result_table([answer(9)]))

    assert found(folder, "f") == plain(answer(0), answer(1), failed)
    assert read_spool(folder, "c", "f").schema.equals(RESULT, check_metadata=True)


def test_rows_with_certain_errors_can_be_left_out(folder: JobFolder) -> None:
    def failed(row: int, code: str) -> RowResult:
        return RowResult(row, finish_reason="error", error=RowErrorInfo(code, "no"))

    write(folder, 1, answer(0), failed(1, "a"), failed(2, "b"))

    assert list(found(folder, "f", skip_errors={"a", "c"})) == [0, 2]


def test_only_rows_of_the_same_fingerprint_are_adopted(folder: JobFolder) -> None:
    write(folder, 1, answer(0), mark="old model")
    write(folder, 2, answer(1), mark="new model")

    assert found(folder, "new model") == plain(answer(1))
    assert set(found(folder, None)) == {0, 1}


def test_the_newest_lease_wins_by_number_not_by_name(folder: JobFolder) -> None:
    for epoch in (10, 9):
        write(folder, epoch, answer(0, f"epoch {epoch}"), answer(epoch))

    assert found(folder, "f")[0]["text"] == "epoch 10"
    assert set(found(folder, "f")) == {0, 9, 10}


def test_the_latest_segment_of_a_lease_wins(folder: JobFolder) -> None:
    writer = SpoolWriter(folder, "c", 1, "f")
    for number in range(12):
        writer.write(result_table([answer(0, f"segment {number}")]))

    assert found(folder, "f")[0]["text"] == "segment 11"


def test_a_chunk_without_a_spool_has_no_rows(folder: JobFolder) -> None:
    write(folder, 1)

    assert read_spool(folder, "c", None).equals(RESULT.empty_table())
    assert not folder.exists("_spool")


def test_a_torn_segment_gives_every_complete_batch(
    folder: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, 1, *(answer(row) for row in range(3 * BATCH_ROWS)))
    path = folder.at("_spool/c/e1-0000.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])

    with caplog.at_level(logging.WARNING):
        rows = found(folder, "f")

    assert set(rows) == set(range(2 * BATCH_ROWS))
    assert "e1-0000.arrow" in caplog.text


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(cut=st.integers(min_value=0))
def test_however_a_segment_is_torn_its_rows_are_right(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = Storage(str(tmp_path_factory.mktemp("spool"))).new_job("job")
    results = [answer(row, f"text {row}") for row in range(2 * BATCH_ROWS + 1)]
    write(folder, 1, *results)
    path = folder.at("_spool/c/e1-0000.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])

    rows, whole_rows = found(folder, "f"), plain(*results)

    assert rows == {row: whole_rows[row] for row in rows}
    assert len(rows) in (0, BATCH_ROWS, 2 * BATCH_ROWS, len(results))


def test_a_segment_whose_text_was_damaged_is_passed_over(
    folder: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, 1, answer(0, "some text"))
    path = folder.at("_spool/c/e1-0000.arrow")
    whole = path.read_bytes()
    assert whole.count(b"some text") == 1
    path.write_bytes(whole.replace(b"some text", b"some \xfe\xff\xff\xff"))

    assert found(folder, "f") == {}
    assert "e1-0000.arrow" in caplog.text


def test_what_is_no_segment_is_passed_over(
    folder: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, 2, answer(1))
    folder.at("_spool/c/e1-0000.arrow").write_bytes(b"this is no Arrow stream")
    other = pa.table({"row_index": [7]})
    with pa.ipc.new_stream(str(folder.at("_spool/c/e1-0001.arrow")), other.schema) as writer:
        writer.write_table(other)

    with caplog.at_level(logging.WARNING):
        assert set(found(folder, None)) == {1}
    assert "e1-0000.arrow" in caplog.text
    assert "another version" in caplog.text
