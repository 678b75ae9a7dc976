"""Where `results` and `run` write: told before the work, and never over the input."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs import export, finalize
from jobs.cli.deployment import Deployment
from jobs.errors import StorageError
from jobs.json_rows import json_lines
from jobs.records import JobRecord, RowResult, TokenLogprob
from jobs.result_table import result_table
from jobs.results import open_version
from tests.support.command_line import CommandLine
from tests.support.openai_shapes import check_line
from tests.support.played_job import PlayedJob

pytestmark = pytest.mark.quick

ROWS = '{"prompt": "one"}\n{"prompt": "two"}\n'


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    return path


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` answers the job in this process."""

    def answer(deployment: Deployment, job: JobRecord, engine: object) -> JobRecord:
        PlayedJob(deployment.store, deployment.storage, job.id).finish_all()
        finalize.drive(deployment.store, deployment.storage, "worker")
        return deployment.store.job(job.id)

    monkeypatch.setattr("jobs.cli.run._answer", answer)


def newest(cli: CommandLine) -> JobRecord:
    with cli.store() as store:
        return store.job(cli.json("list")[0]["id"])


def test_run_refuses_a_target_that_cannot_be_before_it_submits(
    cli: CommandLine, rows: Path, tmp_path: Path
) -> None:
    cli("db", "upgrade")
    wanted = {
        tmp_path / "none" / "a.parquet": "no folder",
        rows / "a.parquet": "no folder",
        tmp_path: "is a folder",
        tmp_path / "a.xlsx": "say --output-format parquet",
        tmp_path / f"{'a' * 300}.jsonl": "name too long",
        rows: "own input",
    }

    for path, sentence in wanted.items():
        _, err = cli("run", str(rows), "--model", "the-model", "-o", str(path), expect=64)
        assert sentence in err.lower()
        assert str(path) in err

    assert cli.json("list") == []
    assert rows.read_text() == ROWS


@pytest.mark.parametrize("command", ["run", "results"])
def test_a_folder_that_cannot_be_written_is_told_before_the_work(
    cli: CommandLine, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The answer of the system is played: nothing is forbidden to root."""
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and may(path, mode))
    arguments = [str(rows), "--model", "the-model"] if command == "run" else ["job_nonsense"]

    _, err = cli(command, *arguments, "-o", str(tmp_path / "a.parquet"), expect=64)

    assert f"{tmp_path} cannot be written; name a file" in err


def test_results_refuse_an_unknown_ending_unless_a_format_is_named(
    cli: CommandLine, rows: Path, tmp_path: Path, played: None
) -> None:
    cli("run", str(rows), "--model", "the-model")
    job_id = cli.json("list")[0]["id"]
    target = tmp_path / "a.xlsx"

    _, err = cli("results", job_id, "-o", str(target), expect=64)
    assert "the ending .xlsx names no format" in err
    assert "--format parquet, jsonl, csv or openai" in err
    assert not target.exists()

    cli("results", job_id, "-o", str(target), "--format", "jsonl")
    assert len(target.read_text().splitlines()) == 2


@pytest.mark.parametrize("source", ["{}", "file://{}"])
def test_results_never_overwrite_the_input(
    cli: CommandLine, rows: Path, tmp_path: Path, played: None, source: str
) -> None:
    cli("run", source.format(rows), "--model", "the-model")
    job_id = cli.json("list")[0]["id"]
    (tmp_path / "link.jsonl").symlink_to(rows)

    for path in (rows, tmp_path / "link.jsonl"):
        _, err = cli("results", job_id, "-o", str(path), expect=64)
        assert "overwrite the job's own input" in err
    assert rows.read_text() == ROWS

    cli("results", job_id, "-o", str(tmp_path / "other.jsonl"))


def test_results_never_overwrite_a_file_of_an_input_folder(
    cli: CommandLine, rows: Path, tmp_path: Path, played: None
) -> None:
    cli("run", str(rows), "--model", "the-model")
    folder = tmp_path / "folder"
    folder.mkdir()
    first = cli.json("list")[0]["id"]
    cli("results", first, "-o", str(folder / "a.parquet"))
    cli("run", str(folder), "--model", "the-model", "--prompt-column", "text")
    second = cli.json("list")[0]["id"]
    before = (folder / "a.parquet").read_bytes()

    _, err = cli("results", second, "-o", str(folder / "a.parquet"), expect=64)

    assert "own input" in err
    assert (folder / "a.parquet").read_bytes() == before


def test_a_pipe_may_be_written(cli: CommandLine, rows: Path, played: None) -> None:
    out, err = cli("run", str(rows), "--model", "the-model", "-o", "/dev/null")

    assert "2 rows in /dev/null" in err
    assert "output: " in out


def test_run_says_where_the_answers_are_if_they_could_not_be_written(
    cli: CommandLine, rows: Path, tmp_path: Path, played: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise StorageError("cannot write a.parquet: No space left on device")

    monkeypatch.setattr(export, "export_file", full)

    out, err = cli(
        "run", str(rows), "--model", "the-model", "-o", str(tmp_path / "a.parquet"), expect=74
    )

    job = cli.json("list")[0]
    assert out.endswith(f"output: {job['output']}\n")
    assert "answer 1" in out
    assert "No space left" in err
    assert f"`pagemill results {job['id']} -o PATH`" in err


def test_answers_as_the_output_of_an_openai_batch(
    cli: CommandLine, rows: Path, tmp_path: Path, played: None
) -> None:
    target = tmp_path / "batch_output.jsonl"
    _, err = cli(
        "run", str(rows), "--model", "the-model", "-o", str(target), "--output-format", "openai"
    )
    assert f"2 rows in {target}" in err
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    for line in lines:
        check_line(line)
    assert [line["custom_id"] for line in lines] == [line["id"] for line in lines]
    assert lines[1]["response"]["body"]["choices"][0]["text"] == "answer 1"

    job_id = cli.json("list")[0]["id"]
    for more in ((), ("--version", "1"), ("--partial",)):
        out, _ = cli("results", job_id, "--format", "openai", *more)
        assert out == target.read_text()
    again = tmp_path / "again.jsonl"
    cli("results", job_id, "--format", "openai", "-o", str(again))
    assert again.read_text() == target.read_text()


def test_partial_answers_of_a_job_that_runs_have_the_form_too(cli: CommandLine) -> None:
    job_id = cli.submit("no json", {"prompt": "a", "custom_id": "x"}, {"prompt": "b"})
    with cli.store() as store:
        job = PlayedJob(store, cli.storage, job_id)
        job.spool(job.claim(), [1])

    out, _ = cli("results", job_id, "--partial", "--format", "openai")

    lines = [json.loads(line) for line in out.splitlines()]
    for line in lines:
        check_line(line)
    assert [line["custom_id"] for line in lines] == [lines[0]["id"], "x"]
    assert lines[0]["error"]["code"] == "invalid_json"
    assert lines[0]["error"]["line"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_the_answers_of_one_job_may_be_the_prompts_of_another(
    cli: CommandLine, rows: Path, tmp_path: Path, played: None, ending: str
) -> None:
    cli("run", str(rows), "--model", "the-model")
    answers = tmp_path / f"answers.{ending}"
    table = next(open_version(cli.storage, newest(cli)).groups())
    token = TokenLogprob(1, "a", b"a", -0.5)
    known = result_table([RowResult(0, logprobs=(token,)), RowResult(1)])["logprobs"]
    table = table.set_column(table.schema.get_field_index("logprobs"), "logprobs", known)
    if ending == "parquet":
        pq.write_table(table, answers)
    else:
        answers.write_bytes(b"".join(json_lines(table)))

    cli("run", str(answers), "--model", "the-model", "--prompt-column", "text")

    (again,) = (list(json_lines(g)) for g in open_version(cli.storage, newest(cli)).groups())
    row = json.loads(again[0])
    carried = row["input.logprobs"] if ending == "parquet" else row["input"]["logprobs"]
    assert [token["token"] for token in carried] == ["a"]
    assert cli.json("list")[0]["rows"]["failed"] == 0
