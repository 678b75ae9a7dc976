"""Parts: every row of a chunk, once, under the output schema."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import OutputError
from jobs.parts import job_schema, read_batches, read_chunk_input, write_part
from jobs.records import ChunkLease, RowErrorInfo, RowResult
from jobs.schema import NORMALIZED, OUTPUT
from jobs.storage import JobFolder, Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job

pytestmark = pytest.mark.quick


@pytest.fixture
def job(store: Store, tmp_path: Path) -> PlayedJob:
    return add_job(store, Storage(str(tmp_path)), [Window([[2, 0], [1, 3]])])


@pytest.fixture
def folder(job: PlayedJob) -> JobFolder:
    return job.storage.job(job.id)


def answers(job: PlayedJob, lease: ChunkLease) -> dict[int, RowResult]:
    return {row: job.answer(row) for row in job.rows_of(lease)}


def test_a_chunk_reads_its_own_row_group(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()

    rows = read_chunk_input(folder, lease.input_path, 1)

    assert rows["row_index"].to_pylist() == [1, 3]
    assert rows.schema.names == [*NORMALIZED.names, "carried:topic"]


def test_a_row_group_that_is_not_there_is_named(job: PlayedJob, folder: JobFolder) -> None:
    with pytest.raises(OutputError, match="2 row groups, none for chunk 2"):
        read_chunk_input(folder, "_input/v1.parquet", 2)


def test_a_part_holds_answers_ids_and_carried_columns(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)

    path = write_part(folder, lease, rows, answers(job, lease))

    table = pq.read_table(folder.at(path))
    assert table.schema.names == [*OUTPUT.names, "topic"]
    assert table.to_pylist()[0] == {
        "row_index": 2,
        "custom_id": "id-2",
        "text": "answer 2",
        "finish_reason": "stop",
        "prompt_tokens": 4,
        "cached_tokens": 2,
        "completion_tokens": 3,
        "error": None,
        "model": "the-model",
        "seed": 2,
        "topic": "topic 2",
    }


def test_a_part_says_in_its_metadata_whose_rows_it_holds(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)

    path = write_part(folder, lease, rows, answers(job, lease), fingerprint="abc")

    metadata = pq.read_schema(folder.at(path)).metadata
    assert metadata[b"pagemill.job"] == job.id.encode()
    assert metadata[b"pagemill.version"] == b"1"
    assert metadata[b"pagemill.model"] == b"the-model"
    assert metadata[b"pagemill.fingerprint"] == b"abc"


def test_parts_of_two_leases_have_two_names(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)
    again = dataclasses.replace(lease, epoch=lease.epoch + 1)

    first = write_part(folder, lease, rows, answers(job, lease))
    second = write_part(folder, again, rows, answers(job, lease))

    assert folder.files("_parts") == [first, second]


def test_an_error_gets_the_line_of_its_row_unless_it_names_one(
    job: PlayedJob, folder: JobFolder
) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)
    results = {
        2: RowResult(2, error=RowErrorInfo("nan_logits", "no number")),
        0: RowResult(0, error=RowErrorInfo("nan_logits", "no number", line=99)),
    }

    path = write_part(folder, lease, rows, results)

    errors = pq.read_table(folder.at(path))["error"].to_pylist()
    assert [error["line"] for error in errors] == [3, 99]


def test_rows_without_a_result_and_results_without_a_row_are_named(
    job: PlayedJob, folder: JobFolder
) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)

    with pytest.raises(OutputError, match=r"without a result: 0; results without a row: 7"):
        write_part(folder, lease, rows, {2: job.answer(2), 7: job.answer(7)})
    assert folder.files("_parts") == []


def test_a_damaged_file_is_told_from_one_that_is_gone(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)
    path = write_part(folder, lease, rows, answers(job, lease))
    folder.at(path).write_bytes(folder.at(path).read_bytes()[:-20])

    with pytest.raises(OutputError, match=r"cannot be read"):
        list(read_batches(folder, path))
    folder.remove(path)
    with pytest.raises(OutputError, match=r"is missing"):
        list(read_batches(folder, path))


def test_columns_that_a_file_lacks_are_null_and_unknown_ones_refused(
    job: PlayedJob, folder: JobFolder
) -> None:
    schema = job_schema(folder, "_input/v1.parquet")
    values = {f.name: pa.array([None], f.type) for f in OUTPUT}
    values |= {"row_index": pa.array([0]), "model": pa.array(["m"])}
    values |= {n: pa.array([0]) for n in schema.names if n.endswith("_tokens")}
    del values["custom_id"], values["error"]
    with folder.create("_parts/plain.parquet") as file:
        pq.write_table(pa.table(values), file)
    with folder.create("_parts/wide.parquet") as file:
        pq.write_table(pa.table(values | {"colour": pa.array(["red"])}), file)

    (batch,) = read_batches(folder, "_parts/plain.parquet", schema)
    assert batch.schema.equals(schema)
    assert batch.column("topic").to_pylist() == [None]
    with folder.create("_parts/again.parquet") as file:
        pq.write_table(pa.Table.from_batches([batch]), file)
    with pytest.raises(OutputError, match="colour"):
        list(read_batches(folder, "_parts/wide.parquet", schema))
