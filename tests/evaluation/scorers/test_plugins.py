"""`python`: functions of installed packages."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest

from jobs.errors import UsageError
from jobs.evaluation.rows import Score
from jobs.evaluation.scorer_syntax import parse_scorers
from jobs.evaluation.scorers import apart as apart_module
from jobs.evaluation.scorers.apart import row_of_line, row_to_line
from jobs.evaluation.scorers.plugins import Python
from jobs.evaluation.spec import ScorerSpec
from jobs.leaving import ToldToLeave
from tests.support.child import child
from tests.support.scored_rows import row, scorer

CODE = """
import os, subprocess, sys, time

from jobs.leaving import ToldToLeave
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

def hangs(row):
    if row.answer == "hang":
        subprocess.Popen(["sleep", "3600"])
        print("for people")
        while True:
            time.sleep(1)
    if row.answer == "die":
        os._exit(7)
    if row.answer == "read":
        return Score(1.0, input() or "nothing")
    return Score(os.getpid(), repr(row))

def leave():
    raise ToldToLeave(0)

def gives(row):
    return eval(row.answer, {"nan": float("nan"), "exit": sys.exit, "leave": leave})
"""
POINTS = """[pagemill.scorers]
polite = scoring_plugin:polite
gives = scoring_plugin:gives
hangs = scoring_plugin:hangs
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


@pytest.mark.quick
def test_the_function_is_given_the_row_and_the_options() -> None:
    given = row("yes please", "t", columns={"topic": "x"})
    assert scorer("python", function="polite").score(given) == Score(1.0, "x t")
    assert scorer("python", function="polite", word="no").score(given) == Score(0.0, "x t")
    thoughts = row("<think>please</think>no", columns={"topic": "x"})
    assert scorer("python", function="polite").score(thoughts).value == 1
    (spec,) = parse_scorers(["python:function=polite,word=yes,as=nice"])
    assert spec == ScorerSpec("nice", "python", {"function": "polite", "word": "yes"})
    assert spec.to_json()["options"] == {"function": "polite", "word": "yes"}


@pytest.mark.quick
def test_none_is_missing_and_so_is_a_row_without_an_answer() -> None:
    made = scorer("python", function="polite")
    assert made.score(row("?")) == Score(None, "the function gave none")
    assert made.score(row(None, error="expired")) == Score(None, "no answer: expired")


@pytest.mark.quick
def test_an_exception_makes_its_row_missing_and_no_more() -> None:
    made = scorer("python", function="polite")
    assert made.score(row("!")) == Score(None, "polite failed: RuntimeError: no idea")
    assert made.score(row("please", columns={"topic": 1})).value == 1
    wrong = scorer("python", function="polite", colour="red")
    assert wrong.score(row("x")).note == "polite failed: TypeError: no {'colour': 'red'}"


@pytest.mark.quick
def test_a_function_that_exits_ends_nothing_but_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its evaluation would be tried again for ever."""
    made = scorer("python", function="gives")
    assert made.score(row("exit(3)")) == Score(None, "gives failed: SystemExit: 3")
    with pytest.raises(ToldToLeave):  # that is for us
        made.score(row("leave()"))


@pytest.mark.quick
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


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has no function, which python needs: the name of an entry point"),
        ({"function": 1}, "has no function"),
        (
            {"function": "polit"},
            "no installed package has a scorer 'polit'.*broken, gives, hangs, limit",
        ),
        ({"function": "broken"}, "'broken'.*cannot be loaded: AttributeError"),
        ({"function": "nowhere"}, "'nowhere'.*cannot be loaded: ModuleNotFoundError"),
        ({"function": "limit"}, r"'limit' \(scoring_plugin:limit\) is no function"),
    ],
)
def test_a_function_that_cannot_be_had(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScorerSpec("p", "python", options).make()


@pytest.mark.quick
def test_a_specification_can_be_read_where_its_function_is_not_installed() -> None:
    value = {"name": "p", "scorer": "python", "options": {"function": "elsewhere"}}
    assert ScorerSpec.from_json(value, "x").to_json() == value


@pytest.mark.quick
def test_two_packages_with_one_name(tmp_path: Path) -> None:
    info = tmp_path / "other_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pagemill.scorers]\npolite = other_plugin:polite\n")
    with pytest.raises(UsageError, match="several packages have a scorer 'polite': other_p"):
        scorer("python", function="polite")


# Starting processes takes as long as the machine is busy, and so may a row: the timeouts of rows
# that are to be answered are long.
def apart(seconds: float) -> Python:
    made = scorer("python", function="hangs", row_timeout=seconds)
    assert isinstance(made, Python)
    return made


def test_a_row_that_hangs_is_missing_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = apart(60)
    before = made.score(row("x"))
    monkeypatch.setattr(made._apart, "_seconds", 0.3)
    process = made._apart._process
    assert process is not None
    assert made.score(row("hang")) == Score(None, "hangs took over 0.3 seconds")
    assert process.returncode == -9
    monkeypatch.setattr(made._apart, "_seconds", 60)
    after = made.score(row("x"))
    assert before.value not in (None, os.getpid(), after.value)
    assert made.score(row("y")).value == after.value  # one process as long as it goes well
    made.close()
    assert made._apart._process is None


def test_a_row_that_ends_the_process_is_missing() -> None:
    made = apart(60)
    assert made.score(row("die")) == Score(None, "hangs ended its process (exit status 7)")
    assert made.score(row("read")).note == "hangs failed: EOFError: EOF when reading a line"
    made.close()


def test_a_function_that_loses_too_many_rows_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_module, "MAX_LOST", 2)
    made = apart(60)
    for _ in range(2):
        assert "ended its process" in (made.score(row("die")).note or "")
    assert made.score(row("x")) == Score(None, "hangs lost 2 rows; it is given up")
    assert made._apart._process is None


def test_a_function_that_hangs_ends_with_who_called_it(tmp_path: Path) -> None:
    """Although that was killed, and could end nothing."""
    code = (
        "from tests.support.scored_rows import row, scorer\n"
        "scorer('python', function='hangs', row_timeout=3600).score(row('hang'))\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    with child(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as calling:
        assert calling.stderr is not None
        assert b"for people" in calling.stderr.readline()
        (called,) = psutil.Process(calling.pid).children()
        ours = [called, *called.children()]
        calling.kill()
        calling.wait()
    assert len(ours) == 2
    assert psutil.wait_procs(ours, timeout=60)[1] == []


def test_the_function_sees_the_same_row_there() -> None:
    zone = ZoneInfo("Europe/Berlin")
    columns = {
        "text": "a\n\ud800\x00", "number": 10**20, "nan": float("inf"), "none": None,
        "bytes": b"\xff",
        "list": [1, {"a": None}], "mixed": [1, "a", [True]], "day": date(2026, 3, 1),
        "at": datetime(2026, 3, 1, 2, tzinfo=zone), "money": Decimal("1.50"),
        "struct": {"when": datetime(2026, 3, 1, tzinfo=UTC)}, "long": "x" * 300_000,
    }  # fmt: skip
    given = row(
        "an answer", [Decimal("2.5")], columns=columns, choices=("a", "b"), best=1, row_index=7,
        prompt="p", custom_id="c",
    )  # fmt: skip
    back = row_of_line(row_to_line(given))
    assert back == replace(given, choices=["a", "b"])
    assert back.columns["at"].utcoffset() == timedelta(hours=1)
    made = apart(60)
    assert (made.score(given).note or "").startswith("ScoredRow(row_index=7, answer='an answer'")
    made.close()
    odd = replace(given, columns={"x": {1: object()}})
    assert "cannot be given the row" in (apart(60).score(odd).note or "")


@pytest.mark.parametrize("seconds", [0, -1, True, "5", float("nan"), 1e9])
def test_a_time_that_no_row_can_have(seconds: Any) -> None:
    with pytest.raises(UsageError, match=r"row_timeout"):
        ScorerSpec("p", "python", {"function": "hangs", "row_timeout": seconds}).make()
    (spec,) = parse_scorers(["python:function=hangs,row_timeout=5"])
    assert spec.options == {"function": "hangs", "row_timeout": 5}
