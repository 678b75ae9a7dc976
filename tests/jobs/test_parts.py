"""Parts: every row of a chunk, once, under the output schema."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import OutputError
from jobs.job_folder import JobFolder
from jobs.parts import (
    answered,
    job_schema,
    read_batches,
    read_chunk_input,
    read_groups,
    write_part,
)
from jobs.records import Choice, ChunkLease, RowErrorInfo, RowResult, TokenLogprob, TopLogprob
from jobs.result_table import result_table
from jobs.schema import NORMALIZED, OUTPUT
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job

pytestmark = pytest.mark.quick


@pytest.fixture
def job(store: Store, tmp_path: Path) -> PlayedJob:
    return add_job(store, Storage(str(tmp_path)), [Window([[2, 0], [1, 3]])])


@pytest.fixture
def folder(job: PlayedJob) -> JobFolder:
    return job.storage.job(job.id)


def answers(job: PlayedJob, lease: ChunkLease) -> pa.Table:
    return result_table(job.answer(row) for row in job.rows_of(lease))


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
        "endpoint": "/v1/completions",
        "choices": None,
        "logprobs": None,
        "prompt_logprobs": None,
        "topic": "topic 2",
    }


def test_a_part_says_in_its_metadata_whose_rows_it_holds(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)

    path = write_part(folder, lease, rows, answers(job, lease), computation="abc")

    metadata = pq.read_schema(folder.at(path)).metadata
    assert metadata[b"pagemill.job"] == job.id.encode()
    assert metadata[b"pagemill.version"] == b"1"
    assert metadata[b"pagemill.model"] == b"the-model"
    assert metadata[b"pagemill.computation"] == b"abc"


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
    error = RowErrorInfo("nan_logits", "no number")
    results = [RowResult(0, error=dataclasses.replace(error, line=99)), RowResult(2, error=error)]

    path = write_part(folder, lease, rows, result_table(results))

    errors = pq.read_table(folder.at(path))["error"].to_pylist()
    assert errors == [
        {"code": "nan_logits", "message": "no number", "line": line, "field": None}
        for line in (3, 99)
    ]


def test_only_rows_with_a_result_are_answered_and_only_errors_get_lines(
    job: PlayedJob, folder: JobFolder
) -> None:
    rows = read_chunk_input(folder, job.claim().input_path, 0)
    rows = pa.concat_tables([rows, rows.set_column(0, NORMALIZED.field(0), pa.array([7, 9]))])
    failed = RowResult(9, error=RowErrorInfo("x", "y"))

    table = answered(rows, result_table([failed, job.answer(0)]), "m")

    assert table["row_index"].to_pylist() == [0, 9]
    assert table["custom_id"].to_pylist() == ["id-0", "id-0"]
    assert table["error"].to_pylist() == [
        None,
        {"code": "x", "message": "y", "line": 1, "field": None},
    ]


def test_chats_and_prompts_are_told_apart(job: PlayedJob, folder: JobFolder) -> None:
    rows = read_chunk_input(folder, job.claim().input_path, 0)
    place = rows.schema.get_field_index("messages")
    chats = rows.set_column(place, "messages", pa.array(["[]", None]))

    table = answered(chats, result_table([job.answer(0), job.answer(2)]), "m")

    assert table["endpoint"].to_pylist() == ["/v1/chat/completions", "/v1/completions"]


def test_choices_and_log_probabilities_are_in_the_part(job: PlayedJob, folder: JobFolder) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)
    token = TokenLogprob(5, "hi", b"hi", -0.5, (TopLogprob(5, "hi", -0.5), TopLogprob(6, "o", -1)))
    choices = (Choice("hi", "stop", 1, (token,)), Choice("", "length", 1, ()))
    results = [
        dataclasses.replace(job.answer(2), choices=choices, logprobs=(token,)),
        job.answer(0),
    ]

    path = write_part(folder, lease, rows, result_table(results))

    first, second = pq.read_table(folder.at(path)).select(["choices", "logprobs"]).to_pylist()
    assert first["logprobs"] == [asdict(token) | {"top": list(map(asdict, token.top))}]
    assert first["choices"][0]["logprobs"] == first["logprobs"]
    assert first["choices"][1] == {
        "text": "", "finish_reason": "length", "completion_tokens": 1, "logprobs": [],
    }  # fmt: skip
    assert second == {"choices": None, "logprobs": None}


def test_a_copy_of_an_earlier_version_has_null_for_what_it_lacks(folder: JobFolder) -> None:
    old = pa.schema([field for field in NORMALIZED if field.name != "chat"])
    with folder.create("_input/v1.parquet") as file:
        pq.write_table(pa.table({f.name: pa.array([None], f.type) for f in old}), file)

    rows = read_chunk_input(folder, "_input/v1.parquet", 0)

    assert rows["chat"].to_pylist() == [None]


def test_rows_without_a_result_and_results_without_a_row_are_named(
    job: PlayedJob, folder: JobFolder
) -> None:
    lease = job.claim()
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)

    with pytest.raises(OutputError, match=r"without a result: 0; results without a row: 7"):
        write_part(folder, lease, rows, result_table([job.answer(2), job.answer(7)]))
    with pytest.raises(OutputError, match="2 rows, 3 results"):
        write_part(folder, lease, rows, result_table(map(job.answer, (2, 0, 2))))
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

    (group,) = read_groups(folder, "_parts/plain.parquet", schema)
    (batch,) = read_batches(folder, "_parts/plain.parquet", schema)
    assert group.equals(pa.Table.from_batches([batch]))
    assert batch.schema.equals(schema)
    assert batch.column("topic").to_pylist() == [None]
    with folder.create("_parts/again.parquet") as file:
        pq.write_table(pa.Table.from_batches([batch]), file)
    with pytest.raises(OutputError, match="colour"):
        list(read_batches(folder, "_parts/wide.parquet", schema))
    with pytest.raises(OutputError, match="colour"):
        list(read_groups(folder, "_parts/wide.parquet", schema))


def test_some_columns_can_be_read_and_those_that_a_file_lacks_are_null(folder: JobFolder) -> None:
    schema = pa.schema([("error", pa.string()), ("text", pa.string()), ("seed", pa.int64())])
    with folder.create("x.parquet") as file:
        pq.write_table(pa.table({"error": ["a"], "error.code": ["b"], "text": ["c"]}), file)

    (group,) = read_groups(folder, "x.parquet", schema, ["seed", "error"])

    assert group.equals(pa.table({"seed": pa.array([None], pa.int64()), "error": ["a"]}))


def test_a_column_is_not_taken_for_a_field_of_its_name(folder: JobFolder) -> None:
    error = pa.array([{"code": "a"}])
    schema = pa.schema([("error", error.type), ("error.code", pa.string())])
    with folder.create("x.parquet") as file:
        pq.write_table(pa.table({"error": error, "error.code": ["b"]}), file)

    (group,) = read_groups(folder, "x.parquet", schema, ["error.code"])

    assert group.equals(pa.table({"error.code": ["b"]}))
