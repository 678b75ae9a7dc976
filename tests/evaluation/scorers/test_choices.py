"""`choice` and `choice_likelihood`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import UsageError
from jobs.evaluation.rows import Score
from jobs.evaluation.scorers import choices
from jobs.evaluation.scorers.choices import chosen
from jobs.evaluation.scorers.texts import normalized
from jobs.evaluation.spec import EvaluationSpec
from jobs.kinds import JobKind
from tests.support.scored_rows import row, scorer

pytestmark = pytest.mark.quick

CITIES = ["London", "Rome", "Paris", "New York"]

# What models write, the letter with the choices at hand, and without them.
ANSWERS: list[tuple[str, str | None, str | None]] = [
    ("B", "B", "B"),
    ("(b)", "B", "B"),
    ("b.", "B", "B"),
    ("**C**", "C", "C"),
    ("C\nBecause it is.", "C", "C"),
    ("B. Rome", "B", "B"),
    ("**B**: Rome", "B", "B"),
    ("Answer: B", "B", "B"),
    ("Answer: (C) Paris", "C", "C"),
    ("The answer is **C**.", "C", "C"),
    ("the answer is c", "C", "C"),
    ("The correct answer is (B) Rome, not (A) London.", "B", "B"),
    ("The best answer is B, since A is in England.", "B", "B"),
    ("The answer is:\n\n**D) New York**", "D", "D"),
    ("So my final answer would be [D].", "D", "D"),
    ("Therefore, option B is correct.", "B", "B"),
    ("The correct choice is D because", "D", "D"),
    ("Choice (d)", "D", "D"),
    ("\\boxed{\\text{D}}", "D", "D"),
    ("Answer: $\\boxed{B}$ and not A.", "B", "B"),
    ("\\boxed{Paris}", "C", None),
    ("Final Answer: new york!", "D", None),
    ("Paris", "C", None),
    ("I think it is Paris.", "C", None),
    ("A city in France: Paris", "C", None),
    ("Let me think. A is wrong. B is wrong. So (C).", "C", "C"),
    ("I think C", "C", "C"),
    ("The answer is a matter of taste, but C", "C", "C"),
    ("The answer is A or B", None, None),
    ("Answer: A, B and D", None, None),
    ("Answer: B/C", None, None),
    ("Not London, but Rome: Answer: A? No. The answer is B.", "B", "B"),
    ("E", None, "E"),
    ("London or Paris", None, None),
    ("It's I'll don't", None, None),
    ("none", None, None),
    ("", None, None),
]


@pytest.mark.parametrize(("answer", "with_texts", "without"), ANSWERS)
def test_what_models_write(answer: str, with_texts: str | None, without: str | None) -> None:
    def letter(index: int | None) -> str | None:
        return None if index is None else "ABCDEFGH"[index]

    assert letter(chosen(answer, CITIES)) == with_texts
    assert letter(chosen(answer, ())) == without


@pytest.mark.parametrize(
    ("target", "options", "worth"),
    [
        ("C", {}, 1), ("c", {}, 1), ("(C)", {}, 1), ("C.", {}, 1), ("B", {}, 0),
        (2, {}, 1), (2.0, {}, 1), ("2", {}, 1), (3, {"first": 1}, 1), (2, {"first": 1}, 0),
        ("Paris", {}, 1), ("paris ", {}, 1), ("Rome", {}, 0),
        (["A", "C"], {}, 1), ([0, 1], {}, 0),
    ],
)  # fmt: skip
def test_a_target_is_a_letter_a_number_or_a_text(
    target: Any, options: dict[str, Any], worth: float
) -> None:
    given = row("The answer is C.", target, choices=CITIES)
    assert scorer("choice", **options).score(given) == Score(worth, "C: Paris")


@pytest.mark.parametrize("target", ["E", "Madrid", 4, -1, 2.5, True, "", "99999999999"])
def test_a_target_that_is_no_choice_makes_the_row_missing(target: Any) -> None:
    score = scorer("choice").score(row("C", target, choices=CITIES))
    assert score.value is None
    assert "is no choice of the row" in str(score.note)


def test_a_choice_by_its_text_comes_before_letters_and_numbers() -> None:
    given = row("The answer is C.", "4", choices=["2", "3", "4"])
    assert scorer("choice").score(given).value == 1
    given = row("The answer is A.", "b", choices=["b", "a"])
    assert scorer("choice").score(given).value == 1


def test_without_choices_there_are_letters_and_numbers() -> None:
    assert scorer("choice").score(row("B", "B")) == Score(1.0, "B")
    assert scorer("choice").score(row("B", 1)) == Score(1.0, "B")
    assert scorer("choice").score(row("so what", 1)) == Score(0.0, "no choice named")
    assert scorer("choice").score(row("B", "Rome")).value is None


@given(st.text(), st.lists(st.text(), max_size=5))
def test_every_text_names_one_or_none(text: str, choices: list[str]) -> None:
    found = chosen(text, choices)
    assert found is None or 0 <= found < (len(choices) or 26)


@pytest.mark.parametrize(
    ("options", "worth", "note"),
    [({}, 1, "C: Paris"), ({"normalized": True}, 0, "B: Rome")],
)
def test_the_likeliest_choice(options: dict[str, Any], worth: float, note: str) -> None:
    made = scorer("choice_likelihood", **options)
    given = row(None, "Paris", choices=CITIES, best=2, best_normalized=1)
    assert made.score(given) == Score(worth, note)
    assert made.score(row(None, 2, best=2, best_normalized=1)).value == worth
    assert made.score(row(None, 2)) == Score(None, "no scores")


def test_likelihoods_are_of_jobs_that_score() -> None:
    def spec(*names: str) -> EvaluationSpec:
        scorers = [{"scorer": name} for name in names]
        return EvaluationSpec.from_json({"inputs": "a", "model": "m", "scorers": scorers})

    assert spec("choice_likelihood").job_kind is JobKind.SCORE
    with pytest.raises(UsageError, match="choice and choice_likelihood read rows of jobs of diff"):
        spec("choice", "choice_likelihood")


@pytest.mark.parametrize("end", ["", "\nB"])
@pytest.mark.parametrize("word", ["answer ", "option: ", "choice", "(A) or (B), "])
def test_a_model_that_says_one_word_without_end_is_read_in_one_go(
    monkeypatch: pytest.MonkeyPatch, word: str, end: str
) -> None:
    text = word * (60_000 // len(word)) + end
    read = 0

    def counting(given: str) -> str:
        nonlocal read
        read += len(given)
        return normalized(given)

    monkeypatch.setattr(choices, "normalized", counting)
    chosen(text, ["Paris", "Rome"])
    assert read < 5 * len(text)


def test_a_choice_after_a_marker_may_be_long() -> None:
    long = ["x " * 3000 + str(n) for n in range(2)]
    assert chosen(f"The answer is: **{long[1]}**.\nIndeed.", long) == 1
    assert chosen(f"Answer: {long[0]}", long) == 0
