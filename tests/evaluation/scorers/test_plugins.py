"""`python`: functions of installed packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import UsageError
from jobs.evaluation.rows import Score
from jobs.evaluation.scorer_syntax import parse_scorers
from jobs.evaluation.spec import ScorerSpec
from tests.support.scored_rows import row, scorer

pytestmark = pytest.mark.quick

CODE = """
from jobs.evaluation.rows import Score

limit = 5

def polite(row, word="please", **more):
    if more:
        raise TypeError(f"no {more}")
    if row.answer == "?":
        return None
    if row.answer == "!":
        raise RuntimeError("no idea")
    return Score(float(word in row.answer), f"{row.columns['topic']} {row.target}")

def gives(row):
    return eval(row.answer, {"nan": float("nan")})
"""
POINTS = """[pagemill.scorers]
polite = scoring_plugin:polite
gives = scoring_plugin:gives
limit = scoring_plugin:limit
broken = scoring_plugin:absent
nowhere = no_such_module_at_all:f
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as pip would have installed it."""
    (tmp_path / "scoring_plugin.py").write_text(CODE)
    info = tmp_path / "scoring_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scoring-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("scoring_plugin", None)


def test_the_function_is_given_the_row_and_the_options() -> None:
    given = row("yes please", "t", columns={"topic": "x"})
    assert scorer("python", function="polite").score(given) == Score(1.0, "x t")
    assert scorer("python", function="polite", word="no").score(given) == Score(0.0, "x t")
    thoughts = row("<think>please</think>no", columns={"topic": "x"})
    assert scorer("python", function="polite").score(thoughts).value == 1
    (spec,) = parse_scorers(["python:function=polite,word=yes,as=nice"])
    assert spec == ScorerSpec("nice", "python", {"function": "polite", "word": "yes"})
    assert spec.to_json()["options"] == {"function": "polite", "word": "yes"}


def test_none_is_missing_and_so_is_a_row_without_an_answer() -> None:
    made = scorer("python", function="polite")
    assert made.score(row("?")) == Score(None, "the function gave none")
    assert made.score(row(None, error="expired")) == Score(None, "no answer: expired")


def test_an_exception_makes_its_row_missing_and_no_more() -> None:
    made = scorer("python", function="polite")
    assert made.score(row("!")) == Score(None, "polite failed: RuntimeError: no idea")
    assert made.score(row("please", columns={"topic": 1})).value == 1
    wrong = scorer("python", function="polite", colour="red")
    assert wrong.score(row("x")).note == "polite failed: TypeError: no {'colour': 'red'}"


@pytest.mark.parametrize(
    ("given", "score"),
    [
        ("2", Score(2.0)),
        ("True", Score(1.0)),
        ("0.5", Score(0.5)),
        ("nan", Score(None, "the function gave nan")),
        ("None", Score(None, "the function gave none")),
        ("'x'", Score(None, "gives failed: ValueError: could not convert string to float: 'x'")),
    ],
)
def test_what_it_may_give(given: str, score: Score) -> None:
    assert scorer("python", function="gives").score(row(given)) == score


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has no function, which python needs: the name of an entry point"),
        ({"function": 1}, "has no function"),
        ({"function": "polit"}, "no installed package has a scorer 'polit'.*broken, gives, limit"),
        ({"function": "broken"}, "'broken'.*cannot be loaded: AttributeError"),
        ({"function": "nowhere"}, "'nowhere'.*cannot be loaded: ModuleNotFoundError"),
        ({"function": "limit"}, r"'limit' \(scoring_plugin:limit\) is no function"),
    ],
)
def test_a_function_that_cannot_be_had(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScorerSpec("p", "python", options).make()


def test_a_specification_can_be_read_where_its_function_is_not_installed() -> None:
    value = {"name": "p", "scorer": "python", "options": {"function": "elsewhere"}}
    assert ScorerSpec.from_json(value, "x").to_json() == value


def test_two_packages_with_one_name(tmp_path: Path) -> None:
    info = tmp_path / "other_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pagemill.scorers]\npolite = other_plugin:polite\n")
    with pytest.raises(UsageError, match="several packages have a scorer 'polite': other_p"):
        scorer("python", function="polite")
