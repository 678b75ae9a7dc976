"""The spool: whatever was written down is found again, and nothing else."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records import RowErrorInfo, RowResult
from jobs.spool import BATCH_ROWS, SpoolWriter, read_spool, result_table, results_of
from jobs.storage import JobFolder, Storage

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return Storage(str(tmp_path)).job("job")


def answer(row: int, text: str = "yes") -> RowResult:
    return RowResult(row, text, "stop", 5, 4, 3, seed=2**62)


def test_segments_of_all_leases_are_read(folder: JobFolder) -> None:
    failed = RowResult(2, finish_reason="error", error=RowErrorInfo("nan_logits", "no", 3, "x"))
    SpoolWriter(folder, "c", 1, "f").write([answer(0), answer(1)])
    SpoolWriter(folder, "c", 2, "f").write([failed])
    SpoolWriter(folder, "other", 1, "f").write([answer(9)])

    assert read_spool(folder, "c", "f") == {0: answer(0), 1: answer(1), 2: failed}


def test_only_rows_of_the_same_fingerprint_are_adopted(folder: JobFolder) -> None:
    SpoolWriter(folder, "c", 1, "old model").write([answer(0)])
    SpoolWriter(folder, "c", 2, "new model").write([answer(1)])

    assert read_spool(folder, "c", "new model") == {1: answer(1)}
    assert set(read_spool(folder, "c", None)) == {0, 1}


def test_the_newest_lease_wins_by_number_not_by_name(folder: JobFolder) -> None:
    for epoch in (10, 9):
        SpoolWriter(folder, "c", epoch, "f").write([answer(0, f"epoch {epoch}")])

    assert read_spool(folder, "c", "f")[0].text == "epoch 10"


def test_the_latest_segment_of_a_lease_wins(folder: JobFolder) -> None:
    writer = SpoolWriter(folder, "c", 1, "f")
    for number in range(12):
        writer.write([answer(0, f"segment {number}")])

    assert read_spool(folder, "c", "f")[0].text == "segment 11"


def test_a_chunk_without_a_spool_has_no_rows(folder: JobFolder) -> None:
    SpoolWriter(folder, "c", 1, "f").write([])

    assert read_spool(folder, "c", None) == {}
    assert not folder.exists("_spool")


def test_a_torn_segment_gives_every_complete_batch(
    folder: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    SpoolWriter(folder, "c", 1, "f").write([answer(row) for row in range(3 * BATCH_ROWS)])
    path = folder.at("_spool/c/e1-0000.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])

    with caplog.at_level(logging.WARNING):
        found = read_spool(folder, "c", "f")

    assert set(found) == set(range(2 * BATCH_ROWS))
    assert "e1-0000.arrow" in caplog.text


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(min_value=0))
def test_however_a_segment_is_torn_its_rows_are_right(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = Storage(str(tmp_path_factory.mktemp("spool"))).job("job")
    rows = {row: answer(row, f"text {row}") for row in range(2 * BATCH_ROWS + 1)}
    SpoolWriter(folder, "c", 1, "f").write(list(rows.values()))
    path = folder.at("_spool/c/e1-0000.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])

    found = read_spool(folder, "c", "f")

    assert found.items() <= rows.items()
    assert len(found) in (0, BATCH_ROWS, 2 * BATCH_ROWS, len(rows))


def test_what_is_no_segment_is_passed_over(
    folder: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    SpoolWriter(folder, "c", 2, "f").write([answer(1)])
    folder.at("_spool/c/e1-0000.arrow").write_bytes(b"this is no Arrow stream")
    other = pa.table({"row_index": [7]})
    with pa.ipc.new_stream(str(folder.at("_spool/c/e1-0001.arrow")), other.schema) as writer:
        writer.write_table(other)

    with caplog.at_level(logging.WARNING):
        assert set(read_spool(folder, "c", None)) == {1}
    assert "e1-0000.arrow" in caplog.text
    assert "another version" in caplog.text


def test_finish_reasons_of_an_enum_are_written_as_their_text() -> None:
    class Reason(StrEnum):
        STOP = "stop"

    table = result_table([RowResult(0, "x", Reason.STOP)])

    assert table["finish_reason"].to_pylist() == ["stop"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.builds(
            RowResult,
            row_index=st.integers(0, 2**62),
            text=st.none() | st.text(st.characters(codec="utf-8")),
            finish_reason=st.sampled_from([None, "stop", "length"]),
            prompt_tokens=st.integers(0, 2**40),
            seed=st.none() | st.integers(0, 2**63 - 1),
            error=st.none()
            | st.builds(
                RowErrorInfo,
                code=st.text(st.characters(codec="utf-8")),
                message=st.text(st.characters(codec="utf-8")),
                line=st.none() | st.integers(1, 2**40),
                field=st.none() | st.text(st.characters(codec="utf-8")),
            ),
        )
    )
)
def test_results_survive_the_way_through_a_table(results: list[RowResult]) -> None:
    table = result_table(results)

    assert [r for batch in table.to_batches() for r in results_of(batch)] == results
