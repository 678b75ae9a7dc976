"""What `submit` takes, refuses and prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import GOOD, CommandLine

pytestmark = pytest.mark.quick


def test_submit_prints_the_id_alone_and_hints_beside_it(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"\n{"prompt": "c", "temperature": -1}\n')

    model = tmp_path / "the model.gguf"
    model.touch()
    out, err = cli("submit", str(path), "--model", str(model))

    job_id = out.removesuffix("\n")
    assert re.fullmatch(r"job_[2-7a-z]{20}", job_id)
    assert "3 rows in 1 chunk" in err
    assert "2 rows cannot be answered" in err
    assert re.search(r"line 2: .*\[invalid_json\]", err)
    assert re.search(r"line 3: temperature .*\[invalid_parameter\]", err)
    assert f"pagemill status {job_id} --watch" in err
    assert f"pagemill worker --model '{model}' --exit-when-done {job_id}\n" in err
    assert "Warning" not in err


def test_one_refused_row_is_spoken_of_as_one(cli: CommandLine) -> None:
    _, err = cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\nbad\n')

    assert "1 row cannot be answered and will be an error row:" in err


def test_the_options_of_submit_reach_the_job(cli: CommandLine, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("About {{ topic }}")
    job_id = cli.submit(
        {"topic": "cats"}, {"topic": "dogs"},
        options=(
            "--name", "pets", "--system", "Be brief.", "--template", str(template),
            "--limit", "1", "--seed", "5", "--priority", "3", "--deadline", "8h",
            "--max-tokens", "9", "--temperature", "0.5", "--top-k", "4", "--top-p", "0.9",
            "--stop", "A", "--stop", "B", "--ignore-eos", "--chunk-rows", "7", "--format", "jsonl",
            "--row-timeout", "90",
        ),
    )  # fmt: skip

    with cli.store() as store:
        job = store.job(job_id)
    assert (job.name, job.seed, job.priority, job.total_rows) == ("pets", 5, 3, 1)
    assert job.options["sampling"] == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.9,
        "stop": ["A", "B"],
        "ignore_eos": True,
    }
    assert job.options["system"] == "Be brief."
    assert job.options["template"] == "About {{ topic }}"
    assert job.options["chunk_rows"] == 7
    assert job.options["row_timeout"] == 90.0
    assert job.deadline_at is not None
    assert abs((job.deadline_at - job.created_at).total_seconds() - 8 * 3600) < 60


def test_options_that_were_not_given_leave_the_defaults(cli: CommandLine) -> None:
    with cli.store() as store:
        job_id = cli.submit(*GOOD)
        job = store.job(job_id)

    assert job.options["sampling"] == {}
    assert job.options["row_timeout"] is None
    assert job.deadline_at is None


def test_rows_come_from_stdin(cli: CommandLine) -> None:
    out, _ = cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n')

    assert cli.json("status", out.strip())["rows"]["total"] == 1


def test_a_local_model_is_named_by_its_absolute_path(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    monkeypatch.chdir(tmp_path)

    out, _ = cli("submit", "in.jsonl", "--model", "model")

    assert cli.json("status", out.strip())["model"] == str(tmp_path / "model")


def test_a_hub_id_is_no_path(cli: CommandLine) -> None:
    out, _ = cli("submit", "-", "--model", "org/model", stdin='{"prompt": "a"}\n')

    assert cli.json("status", out.strip())["model"] == "org/model"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["submit", "none.jsonl", "--model", "m"], 65, "none.jsonl"),
        (["submit", "-", "--model", "m"], 65, "stdin is empty"),
        (["submit", "-", "--model", "m", "--deadline", "soon"], 64, "--deadline 'soon'"),
        (["submit", "-", "--model", "m", "--template", "none"], 64, "--template none"),
        (["submit", "-", "--model", "m", "--temperature", "-1"], 64, "temperature"),
        (["submit", "-", "--model", "m", "--limit", "0"], 64, "limit is 0"),
        (["submit", "-"], 64, "--model"),
        (["status"], 64, "ID"),
        (["nonsense"], 64, "nonsense"),
        (["list", "--state", "lost"], 64, "lost"),
        (["status", "job_nonsense"], 66, "job_nonsense"),
        (["results", "job_nonsense", "--partial", "--version", "1"], 64, "--partial"),
    ],
)
def test_errors_are_one_sentence_and_a_code(
    cli: CommandLine, arguments: list[str], code: int, sentence: str
) -> None:
    cli("db", "upgrade")

    out, err = cli(*arguments, expect=code, stdin="")

    assert out == ""
    assert err.startswith("Error: ")
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_traceback(
    cli: CommandLine, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "environment":
        monkeypatch.setenv("PAGEMILL_DEBUG", "1")
    options = ["--debug"] if how == "option" else []

    _, err = cli(*options, "submit", "none.jsonl", "--model", "m", expect=65)

    assert "Traceback" in err
    assert "InputError" in err


def test_a_refused_file_leaves_nothing_behind(cli: CommandLine) -> None:
    cli("submit", "-", "--model", "m", stdin="nonsense\n", expect=65)

    assert not list(cli.storage.root.glob("job_*"))
    assert cli.json("list") == []


def test_a_job_that_could_not_be_inserted_leaves_no_folder(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.errors import DatabaseError
    from jobs.store import Store

    def refuse(self: Store, job: object) -> None:
        raise DatabaseError("the database is full")

    monkeypatch.setattr(Store, "insert_job", refuse)
    cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n', expect=69)

    assert not list(cli.storage.root.glob("job_*"))
