"""The tables of docs/evaluations.md about scorers, numbers, choices and rules are the code's."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from string import ascii_uppercase
from typing import Any, get_args

import pytest

from jobs.evaluation import statistics
from jobs.evaluation.aggregate import MAX_SLICES, NULL, OTHER
from jobs.evaluation.gate import judge
from jobs.evaluation.rules import Bound, Change, GateSpec, parse_rule
from jobs.evaluation.scorer_syntax import parse_scorers
from jobs.evaluation.scorers import bounded
from jobs.evaluation.scorers.choices import chosen
from jobs.evaluation.scorers.judge import DEFAULT_RUBRIC, Judge
from jobs.evaluation.scorers.numbers import Numeric
from jobs.evaluation.scorers.registry import SCORERS
from jobs.records.evaluations import Verdict
from tests.support.measured import newest_result
from tests.support.named_tests import page
from tests.support.scored_rows import row

pytestmark = pytest.mark.quick

PAGE = page("evaluations.md")
TEXT = re.sub(r"\s+", " ", PAGE)


def table(header: str) -> list[list[str]]:
    """The cells of the table whose header begins so."""
    lines = PAGE[PAGE.index(f"| {header}") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def written(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return default if isinstance(default, str) else f"{default:g}"


def test_all_scorers_are_there() -> None:
    assert [code(cells[0])[0] for cells in table("scorer |")] == list(SCORERS)


@pytest.mark.parametrize("name", SCORERS)
def test_all_options_of_a_scorer_are_there_with_their_defaults(name: str) -> None:
    cell = next(cells[2] for cells in table("scorer |") if code(cells[0])[0] == name)
    known = {f.name: f for f in fields(SCORERS[name]) if f.name in SCORERS[name].options()}
    told = re.findall(r"(?:^|[;,] )`(\w+)`(?: \(`?([^)`]*)`?\))?", cell)
    assert [option for option, _ in told if option in known] == list(known)
    for option, default in told:
        if option in known and default and known[option].default not in (None, MISSING):
            assert default == written(known[option].default)
    for option, hint in SCORERS[name].options().items():
        for value in get_args(hint):
            if isinstance(value, str):
                assert f"`{value}`" in cell, (option, value)


@pytest.mark.parametrize("cells", table("scorer |"), ids=lambda cells: str(cells[0]))
def test_examples_are_read(cells: list[str]) -> None:
    (example,) = code(cells[3])
    (scorer,) = parse_scorers([example])
    assert scorer.scorer == code(cells[0])[0]
    assert len(scorer.options) == example.count("=")


@pytest.mark.parametrize("cells", table("written as |"), ids=lambda cells: str(cells[0]))
def test_forms_of_the_option_are_read(
    cells: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scorers.json").write_text('[{"scorer": "exact"}]')
    assert len(parse_scorers(code(cells[0]))) == 1


@pytest.mark.parametrize("cells", table("the answer | the number"), ids=lambda cells: str(cells[0]))
def test_numbers(cells: list[str]) -> None:
    for answer in code(cells[0]):
        found = Numeric().found(answer)
        assert (None if found is None else found.value) == (
            None if cells[1] == "none" else float(cells[1])
        )


@pytest.mark.parametrize("cells", table("the answer, of London"), ids=lambda cells: str(cells[0]))
def test_choices(cells: list[str]) -> None:
    for answer in code(cells[0]):
        found = chosen(answer, ["London", "Rome", "Paris", "Berlin"])
        assert (found if found is None else ascii_uppercase[found]) == (
            None if cells[1] == "none" else cells[1]
        )


@pytest.mark.parametrize("cells", table("rule |"), ids=lambda cells: str(cells[0]))
def test_rules(cells: list[str]) -> None:
    rule = parse_rule(code(cells[0])[0], "rule", 0.05)
    if isinstance(rule, Bound):
        assert ("slice" in cells[1]) == (rule.slice is not None)
        assert f"{rule.limit:g}" in cells[1] or "the same" in cells[1]
    else:
        assert isinstance(rule, Change)
        assert ("lower" in cells[1] or "the same" in cells[1]) == (rule.direction < 0)
        assert ("0.05" in cells[1] or "significantly" in cells[1]) == (rule.level is not None)


def test_limits_are_those_of_the_code() -> None:
    defaults = Judge().job_options
    for said in (
        f"The last {bounded.MAX_CHARACTERS:,} characters of an answer are searched",
        f"ends after {bounded.MAX_SECONDS:g} seconds",
        f"after {bounded.MAX_SLOW} such rows",
        f"{statistics.RESAMPLES:,} resamples, percentiles, {statistics.LEVEL:.0%}".replace(
            "%", " %"
        ),
        f"the slice `{NULL}`; the {MAX_SLICES} most frequent values",
        f"all others are `{OTHER}` together",
        f'"{DEFAULT_RUBRIC}"',
        f"`max_tokens` is {defaults['max_tokens']} and `temperature` {defaults['temperature']}",
        f"`alpha`, {GateSpec().alpha} unless it is given",
        f"a number of rows, {GateSpec().missing} by default",
        f"at least {2 / (statistics.RESAMPLES + 1):.3f}",
    ):
        assert said in TEXT, said


def test_the_options_and_the_variables_of_a_judge_are_those_of_the_code() -> None:
    rows = {code(cells[0])[0]: cells[1] for cells in table("option |")}
    assert rows.keys() == Judge.options().keys()
    given = re.search(r"the row's columns, and (.*)", rows["template"])
    assert given is not None
    template = "".join("{{" + name + "}}" for name in code(given[1]))
    assert Judge(template=template).prompt(row("the answer", "t", prompt="p"))


def test_verdicts_are_named() -> None:
    for verdict in Verdict:
        if verdict is not Verdict.FAILED:  # no gate says it
            assert f"`{verdict}`" in TEXT
    assert judge(GateSpec(), []).verdict is Verdict.PASSED


def test_what_it_takes_is_what_was_measured() -> None:
    found = newest_result("evaluations")
    assert f"Of {found['rows']:,} rows" in PAGE
    assert f"by {('three', 'four')[len(found['scorers']) - 3]} scorers" in PAGE
    measured = [
        [f"{step['cpu_seconds']:.0f} s", f"{step['peak_rss_mb']:.0f} MB"]
        for step in (found["results"][name] for name in ("score", "compare", "report"))
    ]
    assert [cells[1:] for cells in table("step | time")] == measured
