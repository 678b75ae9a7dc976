"""`pagemill report`: where the page goes, and what is said where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from jobs.cli.app import app
from jobs.records.evaluations import EvaluationState
from tests.support.command_line import CommandLine
from tests.support.made_evaluations import MadeEvaluations, a_row
from tests.support.made_series import add_series, answered, score
from tests.support.parsed_page import parsed

pytestmark = pytest.mark.quick


@pytest.mark.slow
def test_the_page_is_a_file_by_itself(cli: CommandLine, made: MadeEvaluations) -> None:
    ids = add_series(made)

    out, err = cli("report", "nightly")

    assert out == ""
    assert err == f"the report of nightly ({ids['newest']}) is in report.html\n"
    page = Path("report.html").read_text("utf-8")
    assert parsed(page).one("h1").text == "nightly"
    assert set(os.listdir()) == {"home", "report.html"}

    cli("report", ids["newest"])  # its own kind is replaced
    assert cli("report", ids["newest"], "-o", "-")[0].count("</html>") == 1
    cli("report", "-o", "other.html")
    assert Path("other.html").read_text("utf-8").startswith("<!doctype html>")


def test_what_is_no_report_is_not_replaced(cli: CommandLine, made: MadeEvaluations) -> None:
    add_series(made)
    for name in ("report.html", "README.md"):
        Path(name).write_text("mine")

    assert (
        "report.html is there, and is no report of pagemill; name a file with -o"
        in (cli("report", expect=64)[1])
    )
    for name in ("report.html", "README.md"):
        err = cli("report", "-o", name, expect=64)[1]
        assert f"{name} is there, and is no report of pagemill; name another file with -o" in err
        assert cli("report", "--json", "-o", name, expect=64)[0] == ""
        assert Path(name).read_text() == "mine"


def test_an_empty_file_and_a_device_may_be_named(cli: CommandLine, made: MadeEvaluations) -> None:
    add_series(made)
    Path("made-by-mktemp").touch()

    cli("report", "-o", "made-by-mktemp")
    cli("report", "-o", "made-by-mktemp")
    cli("report", "-o", "/dev/null")

    assert "</html>" in Path("made-by-mktemp").read_text("utf-8")


def test_json_goes_to_stdout_and_no_page_unless_it_is_named(
    cli: CommandLine, made: MadeEvaluations
) -> None:
    ids = add_series(made)

    assert cli.json("report")["evaluation"]["id"] == ids["newest"]
    assert not Path("report.html").exists()
    assert cli.json("report", "nightly", "-o", "page.html", "--runs", "3")["older_runs"] == 7
    assert Path("page.html").exists()
    assert "both write to stdout" in cli("report", "--json", "-o", "-", expect=64)[1]


def test_what_it_is_compared_with_can_be_chosen(cli: CommandLine, made: MadeEvaluations) -> None:
    ids = add_series(made)

    def against(*arguments: str) -> tuple[str, str]:
        found = cli.json("report", *arguments)["results"]["against"]
        return found["evaluation"], found["word"]

    assert against() == (ids["baseline"], "the baseline")
    assert against("--against", "previous") == (ids["previous"], "the run before")
    assert against("--against", ids["run 0"]) == (ids["run 0"], "the run that was asked for")
    first = cli.json("report", "--against", ids["run 0"])["results"]["comparisons"]
    (computed,) = [c for c in first if c["other_id"] == ids["run 0"] and c["scorer"] == "exact"]
    rows = [answered(share, k) for share, k in ((0.72, 0), (0.63, 9))]
    assert computed["role"] is None
    assert computed["pairs"] == sum(row["score.exact"] is not None for row in rows[0])
    assert computed["method"] == "mcnemar"
    err = cli("report", "--against", ids["newest"], expect=64)[1]
    assert "is the run itself" in err
    err = cli("report", "--against", ids["failed"], expect=64)[1]
    assert "is failed, and has no scores" in err


def test_names_and_ids_are_completed(cli: CommandLine, made: MadeEvaluations) -> None:
    ids = add_series(made)
    command = get_command(app).commands["report"]  # type: ignore[attr-defined]
    name, against = (p for p in command.params if p.name in ("evaluation", "against"))

    def completed(parameter: Any, incomplete: str) -> list[str]:
        found = parameter.shell_complete(command.make_context("report", []), incomplete)
        return [item.value for item in found]

    assert completed(name, "") == ["nightly"]
    assert completed(name, ids["newest"][:9]) == [ids["newest"]]
    assert completed(against, "b") == ["baseline"]
    assert completed(against, ids["newest"][:9]) == [ids["newest"]]


def test_an_older_run_is_reported_as_it_was_then(cli: CommandLine, made: MadeEvaluations) -> None:
    ids = add_series(made)

    found = cli.json("report", ids["previous"])

    assert [run["id"] for run in found["runs"]][-1] == ids["previous"]
    assert ids["newest"] not in [run["id"] for run in found["runs"]]


def test_what_goes_on_is_told(cli: CommandLine, made: MadeEvaluations) -> None:
    made.add("nightly", scores=[score("exact", 0.5)], rows=[a_row(0, "a", exact=1.0)])
    assert "not ended" not in cli("report", "nightly", "--json")[1]
    made.add("weekly", state=EvaluationState.ANSWERING)
    assert "not ended" not in cli("report", "nightly", "--json")[1]
    made.add("nightly", state=EvaluationState.ANSWERING)

    out, err = cli("report", "nightly", "-o", "-")

    assert err == (
        "1 evaluation has not ended yet of nightly, and the report is without; "
        "`pagemill eval list nightly` shows how far\n"
    )
    assert "1 of the series has not ended yet." in out


def test_what_is_not_there_is_said(cli: CommandLine, made: MadeEvaluations) -> None:
    assert "no evaluation has ended yet" in cli("report", expect=66)[1]
    assert "there are none at all" in cli("report", "nightly", expect=66)[1]
    open_id = made.add("weekly", state=EvaluationState.ANSWERING)
    assert "no evaluation of weekly has ended yet" in cli("report", "weekly", expect=66)[1]
    assert "there are weekly" in cli("report", "nightly", expect=66)[1]
    assert f"evaluation {open_id} is answering" in cli("report", open_id, expect=64)[1]
    assert "there is no evaluation" in cli("report", "eval_nothing", expect=66)[1]
    made.add("weekly", scores=[score("exact", 0.5)], rows=[a_row(0, "a", exact=1.0)])
    assert "there is no folder" in cli("report", "-o", "gone/report.html", expect=64)[1]
    assert "open_runs" in cli("report", "weekly", "--json")[0]
    made.add("eval_of_maths", scores=[score("exact", 0.5)])
    assert cli.json("report", "eval_of_maths")["series"] == "eval_of_maths"
