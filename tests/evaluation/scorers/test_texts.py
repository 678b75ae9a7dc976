"""`exact`, `normalized` and `regex`, and what all scorers have in common."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import UsageError
from jobs.evaluation.rows import MAX_NOTE, Score
from jobs.evaluation.scorers import bounded
from jobs.evaluation.scorers.registry import SCORERS, scorer_kind
from jobs.evaluation.scorers.texts import normalized
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.spec import ScorerSpec
from tests.support.scored_rows import row, scored, scorer, value

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("answer", "target", "options", "worth"),
    [
        ("Paris", "Paris", {}, 1),
        (" Paris\n", "Paris", {}, 1),
        (" Paris", "Paris", {"strip": False}, 0),
        ("paris", "Paris", {}, 0),
        ("STRASSE", "straße", {"ignore_case": True}, 1),
        ("42", 42, {}, 1),
        ("42", 42.0, {}, 1),
        ("0.5", 0.5, {}, 1),
        ("true", True, {}, 1),
        ("1", True, {}, 0),
        ("b", ["a", "b", None], {}, 1),
        ("c", ["a", "b"], {}, 0),
        ("", "", {}, 1),
    ],
)
def test_exact(answer: str, target: Any, options: dict[str, Any], worth: float) -> None:
    assert value("exact", answer, target, **options) == worth


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("The  Eiffel-Tower!", "eiffeltower"),
        ("an apple, a pear", "apple pear"),
        ("theatre and a", "theatre and"),
        ("\uff26\uff55\uff4c\uff4c\u3000\uff57idth\u3002", "full width"),
        ("«Straße»", "strasse"),
        ("ﬁne", "fine"),
        ("It\u2019s", "its"),
        ("cafe\u0301", "café"),
        ("ÉCOLE", "école"),
        ("+", "+"),
        ("The", "the"),
        ("¿Qué?", "qué"),
        ("", ""),
    ],
)
def test_what_normalized_compares(text: str, form: str) -> None:
    assert normalized(text) == form
    assert value("normalized", text, form) == 1


@given(st.text())
def test_what_is_normalized_stays_what_it_is_worth(text: str) -> None:
    assert value("normalized", text, text) == 1
    assert value("normalized", f" {text.casefold()}\n", text) == 1


@pytest.mark.parametrize("name", [name for name in SCORERS if name not in ("judge", "python")])
def test_rows_without_an_answer_or_a_target_are_missing(name: str) -> None:
    made = scorer(name, **({"pattern": "a"} if name == "regex" else {}))
    assert made.score(row(None, "x", error="row_timeout")) == Score(None, "no answer: row_timeout")
    for target in (None, [], [None]):
        assert made.score(row("x", target)) == Score(None, "no target")
    without = made.score(row(None, {} if name == "json_schema" else 1))
    assert without.value is None
    assert without.note in ("no answer", "no scores")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<think>It is 5. No, 6.</think>\n\n7", "7"),
        ("It is 5. No, 6.</think>7", "7"),
        ("<think>a</think>b</think>7", "7"),
        ("\n<think>It is 7", ""),
        ("I <think> it is 7", "I <think> it is 7"),
        ("rethink>", "rethink>"),
    ],
)
def test_thoughts_are_no_part_of_an_answer(answer: str, said: str) -> None:
    assert value("exact", answer, said) == 1
    assert value("normalized", answer, said) == 1
    for name in ("bleu", "f1"):
        assert scored(name, answer, "7") == scored(name, said, "7")
    made = scorer("bleu")
    assert isinstance(made, CorpusScorer)
    assert made.score(row(answer, "7")).counts == made.score(row(said, "7")).counts


def test_a_scorer_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="x is 'numerc', which is no scorer; did you mean numeric"):
        scorer_kind("numerc", "x")
    with pytest.raises(UsageError, match="there are exact, normalized, regex, "):
        scorer_kind(5, "x")


@pytest.mark.parametrize(
    ("answer", "options", "score"),
    [
        ("so 12 and 34", {"pattern": r"\d+"}, Score(0, "12")),
        ("so 12 and 34", {"pattern": r"\d+", "take": "last"}, Score(1, "34")),
        ("so 12 = 34.", {"pattern": r"= (\d+)"}, Score(1, "34")),
        ("so 12 = 34.", {"pattern": r"(\d+) = (\d+)"}, Score(0, "12")),
        ("so 12 = 34.", {"pattern": r"(\d+) = (\d+)", "group": 2}, Score(1, "34")),
        ("so 12 = 34.", {"pattern": r"(\d+) = (?P<x>\d+)", "group": "x"}, Score(1, "34")),
        ("so 12 = 34.", {"pattern": r"(\d+) = (\d+)", "group": 0}, Score(0, "12 = 34")),
        ("IS 34", {"pattern": r"is (\d+)"}, Score(0, "no match")),
        ("IS 34", {"pattern": r"is (\d+)", "ignore_case": True}, Score(1, "34")),
        ("x", {"pattern": r"x|(y)"}, Score(0, "no match")),
        ("sorry, no", {"pattern": r"^sorry", "found": True}, Score(1, "sorry")),
        ("no", {"pattern": r"^sorry", "found": True}, Score(0, "no match")),
    ],
)
def test_regex(answer: str, options: dict[str, Any], score: Score) -> None:
    target = None if options.get("found") else "34"
    assert scored("regex", answer, target, **options) == score


def test_what_a_regex_finds_is_compared_as_normalized_does() -> None:
    assert value("regex", "Answer: The  PARIS!", ["London", "paris"], pattern="Answer: (.*)") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "options has no pattern, which regex needs"),
        ({"pattern": "("}, "options.pattern is no regular expression: missing"),
        ({"pattern": 1}, "options.pattern is 1; it must be a text"),
        ({"pattern": "a", "group": 1}, "options.group is 1; the pattern has 0"),
        ({"pattern": "(?P<x>a)", "group": "y"}, "options.group is 'y'; the pattern has 0, 1, x"),
        ({"pattern": "a", "group": True}, "options.group is true; it must be a whole number or a"),
        ({"pattern": "a", "take": "all"}, "options.take is 'all'; it must be one of 'first', 'la"),
    ],
)
def test_options_that_regex_cannot_have(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScorerSpec("r", "regex", options).make()


def test_an_expression_without_end_makes_a_row_missing_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 0.01)
    monkeypatch.setattr(bounded, "MAX_SLOW", 2)
    made = scorer("regex", pattern="(a|aa)+$")
    endless = row("a" * 200 + "b", "x")
    assert made.score(endless) == Score(None, "the pattern took over 0.01 seconds")
    assert made.score(row("xa", "a")) == Score(1, "a")
    assert made.score(endless).value is None
    assert made.score(row("xa", "a")).note == (
        "the pattern took too long for 2 rows; it is given up"
    )
    assert scorer("regex", pattern="(a|aa)+$").score(row("xa", "a")) == Score(1, "a")


def test_the_end_of_a_long_answer_is_searched() -> None:
    long = "5 " + "x" * bounded.MAX_CHARACTERS
    assert scored("regex", long, "5", pattern=r"\d") == Score(0, "no match")
    assert scored("regex", f"{long} 5", "5", pattern=r"\d") == Score(1, "5")


def test_notes_are_short() -> None:
    note = scored("regex", "x" * 5_000, "x", pattern="x+").note
    assert note == "x" * MAX_NOTE + "…"
