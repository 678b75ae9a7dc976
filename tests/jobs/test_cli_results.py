"""Where and in which form `results` gives the answers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.command_line import GOOD, CommandLine, answer_all
from tests.support.played_job import PlayedJob

pytestmark = pytest.mark.quick


def test_results_go_to_stdout_as_jsonl(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad")
    answer_all(cli, job_id)

    out, _ = cli("results", job_id)

    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["row_index"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["text"] == "answer 0"
    assert rows[0]["input"] == {"topic": "a"}
    assert rows[3]["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("name", "options", "parquet"),
    [
        ("a.parquet", [], True),
        ("a.jsonl", [], False),
        ("a", [], True),
        ("a", ["--format", "jsonl"], False),
        ("a.out", ["--format", "jsonl"], False),
        ("a.jsonl", ["--format", "parquet"], True),
    ],
)
def test_results_go_to_a_file_in_the_format_of_its_name(
    cli: CommandLine, tmp_path: Path, name: str, options: list[str], parquet: bool
) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id)
    path = tmp_path / name

    out, err = cli("results", job_id, "-o", str(path), *options)

    assert out == ""
    assert "3 rows in" in err
    rows = (
        pq.read_table(path).to_pylist()
        if parquet
        else [json.loads(line) for line in path.read_text().splitlines()]
    )
    assert [row["text"] for row in rows] == ["answer 0", "answer 1", "answer 2"]


def test_results_before_the_end_need_partial(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, options=("--chunk-rows", "1"))
    with cli.store() as store:
        job = PlayedJob(store, cli.storage, job_id)
        job.finish(job.claim())

    _, err = cli("results", job_id, expect=75)
    assert "--partial" in err
    out, err = cli("results", job_id, "--partial")
    assert len(out.splitlines()) == 1
    assert err == ""


def test_partial_results_without_a_row_say_so(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    assert cli("results", job_id, "--partial") == (
        "",
        f"job {job_id} (queued) has no rows yet\n",
    )


def test_results_while_a_retry_runs_say_that_they_are_of_the_version_before(
    cli: CommandLine,
) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id, failing={1})
    cli("retry", job_id)

    out, err = cli("results", job_id)

    assert len(out.splitlines()) == 3
    assert "works on version 2" in err
    answer_all(cli, job_id)
    versions = [cli("results", job_id, "--version", v)[0].splitlines()[1] for v in "12"]
    assert [json.loads(row)["text"] for row in versions] == [None, "answer 1"]


def test_results_as_csv(cli: CommandLine, tmp_path: Path) -> None:
    job_id = cli.submit({"prompt": "a", "topic": "x, y"}, "bad")
    answer_all(cli, job_id)
    path = tmp_path / "answers.csv"

    cli("results", job_id, "-o", str(path))

    first, second = csv.DictReader(io.StringIO(path.read_text("utf-8"), newline=""))
    assert (first["text"], first["error.code"]) == ("answer 0", "")
    assert json.loads(first["input"]) == {"topic": "x, y"}
    assert (second["text"], second["error.code"], second["error.line"]) == ("", "invalid_json", "2")
    assert cli("results", job_id, "--format", "csv")[0] == path.read_text("utf-8")
