"""The answers of a job in Python, in each of the forms that they may have."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import Job, OutputNotReady, PackageMissing, UsageError, finalize, submit
from jobs.results import PublishedVersion
from tests.support.command_line import CommandLine
from tests.support.played_job import MODEL, PlayedJob

ROWS: list[dict[str, Any]] = [{"prompt": f"row {n}", "topic": f"t{n}"} for n in range(6)]


@pytest.fixture
def job(cli: CommandLine) -> Job:
    return submit([*ROWS, {"nothing": 1}], model=MODEL, chunk_rows=2)


def play(cli: CommandLine, job: Job) -> None:
    with cli.store() as store:
        PlayedJob(store, cli.storage, job.id, {3}).finish_all()
        finalize.drive(store, cli.storage, "worker")


def test_every_form_holds_the_same_rows(cli: CommandLine, job: Job) -> None:
    play(cli, job)
    results = job.results()

    table = results.arrow()

    assert results.path is not None
    assert table.equals(pq.read_table(results.path).cast(table.schema))
    assert table.schema.equals(results.schema)
    assert table["text"].to_pylist() == [None if n in (3, 6) else f"answer {n}" for n in range(7)]
    frame = results.pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["row_index"].tolist() == list(range(7))
    assert frame["error"][3]["code"] == "nan_logits"
    other = results.polars()
    assert isinstance(other, pl.DataFrame)
    assert other["text"].to_list() == table["text"].to_pylist()
    assert list(results) == [json.loads(line) for line in cli("results", job.id)[0].splitlines()]
    assert [row["input"] for row in results][1] == {"topic": "t1"}
    assert list(results) == list(results), "they can be read again"
    assert repr(results) == f"Results({job.id!r}, version=1)"


def test_large_integers_are_exact_in_pandas_beside_nulls(cli: CommandLine) -> None:
    numbers = {"big": pa.array([2**53 + 1, None]), "bytes": pa.array([None, 255], pa.uint8())}
    job = submit(pa.table({"prompt": ["a", ""], **numbers}), model=MODEL)
    play(cli, job)

    frame = job.results().pandas(["big", "seed", "bytes", "row_index"])

    assert list(frame) == ["big", "seed", "bytes", "row_index"]
    assert [frame["big"][0], frame["bytes"][1]] == [2**53 + 1, 255]
    assert frame.isna().to_numpy().tolist() == [
        [False, False, True, False],
        [True, True, False, False],
    ]
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "Int64", "UInt8", "int64"]


@pytest.mark.parametrize(
    ("package", "kind", "value"),
    [
        ("pandas", pa.timestamp("us", "Mars/Phobos"), None),
        ("polars", pa.timestamp("us", "+05:30"), None),
        ("polars", pa.decimal256(50), 1),
    ],
)
def test_a_column_that_a_package_cannot_hold_is_named(
    cli: CommandLine, package: str, kind: pa.DataType, value: Any
) -> None:
    column = pa.array([value], kind)
    job = submit(pa.table({"prompt": ["a"], "topic": ["t"], "odd": column}), model=MODEL)
    play(cli, job)
    results = job.results()

    with pytest.raises(UsageError) as refused:
        getattr(results, package)()

    assert str(refused.value).startswith(f"{package} cannot hold the column 'odd' ({kind}): ")
    assert getattr(results, package)(["topic"]).shape == (1, 1)
    assert results.arrow(["odd"])["odd"].combine_chunks().equals(column)


def test_some_columns_alone_are_read(cli: CommandLine, job: Job) -> None:
    play(cli, job)
    results = job.results()
    names = ["text", "row_index"]
    assert results.arrow(names).schema.names == names
    assert list(results.pandas(names)) == names
    assert results.polars(names).columns == names
    assert [part.schema.names for part in results.tables(["text"])] == [["text"]]
    with pytest.raises(UsageError, match="there is no column 'txt'; there are row_index, custom"):
        results.arrow(["txt"])


def test_partial_results_grow_while_the_job_runs(cli: CommandLine, job: Job) -> None:
    with pytest.raises(OutputNotReady, match="has published nothing yet"):
        job.results()
    partial = job.results(partial=True)
    assert partial.path is None
    assert [row["row_index"] for row in partial] == [6]
    assert partial.arrow(["text"]).num_rows == 1
    with cli.store() as store:
        played = PlayedJob(store, cli.storage, job.id)
        played.finish(played.claim())
    assert partial.pandas(["row_index"])["row_index"].tolist() == [0, 1, 6]
    play(cli, job)
    assert partial.arrow().num_rows == 7
    assert repr(job.results(partial=True)) == f"Results({job.id!r}, version=1)"
    with pytest.raises(UsageError, match="cannot be given together"):
        job.results(version=1, partial=True)
    with pytest.raises(OutputNotReady, match="has no version 2"):
        job.results(version=2)


def test_a_job_without_rows_so_far_has_an_empty_table(cli: CommandLine) -> None:
    empty = submit(ROWS, model=MODEL).results(partial=True)
    assert list(empty) == []
    assert empty.arrow().schema.names == empty.schema.names
    assert empty.pandas(["text"]).empty
    assert empty.polars().height == 0


def test_rows_are_read_as_they_are_asked_for(
    cli: CommandLine, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(cli, job)
    table = job.results().arrow()
    read = 0

    def groups(*_: object) -> Iterator[pa.Table]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield table

    monkeypatch.setattr(PublishedVersion, "groups", groups)
    rows = iter(job.results())
    for _ in range(table.num_rows + 1):
        next(rows)
    assert read == 2


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_missing_is_named(
    cli: CommandLine, job: Job, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PackageMissing, match=f"`pip install {package}`"):
        getattr(job.results(partial=True), package)()
    with pytest.raises(ImportError):
        getattr(job.results(partial=True), package)()


@pytest.mark.parametrize(
    ("name", "form", "option"),
    [
        ("a.parquet", None, "parquet"),
        ("a.jsonl", None, "jsonl"),
        ("a.csv", None, "csv"),
        ("a", "parquet", "parquet"),
        ("a.txt", "openai", "openai"),
    ],
)
def test_files_are_those_that_the_command_line_writes(
    cli: CommandLine, job: Job, tmp_path: Path, name: str, form: str | None, option: str
) -> None:
    play(cli, job)
    assert job.results().write(tmp_path / name, format=form) == 7
    cli("results", job.id, "-o", str(tmp_path / "theirs"), "--format", option)
    assert (tmp_path / name).read_bytes() == (tmp_path / "theirs").read_bytes()


def test_a_file_that_cannot_be_written_is_refused_in_words(
    cli: CommandLine, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = job.results(partial=True)
    for path, form, said in (
        (tmp_path / "a.xlsx", None, "names no format"),
        (tmp_path / "a.jsonl", "xml", "format is 'xml'; it must be one of"),
        (tmp_path, None, "is a folder"),
        (tmp_path / "none" / "a.jsonl", None, "there is no folder"),
    ):
        with pytest.raises(UsageError, match=said):
            results.write(path, format=form)
    monkeypatch.chdir(tmp_path)
    assert results.write("-", format="jsonl") == 1
    assert (tmp_path / "-").exists(), "a name like others"


def test_a_job_does_not_overwrite_its_own_input(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n')
    with pytest.raises(UsageError, match="would overwrite the job's own input"):
        submit(path, model=MODEL).results(partial=True).write(path)
    assert path.read_text() == '{"prompt": "a"}\n'
