"""`numeric`."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import UsageError
from jobs.evaluation.rows import Score
from jobs.evaluation.scorers.numbers import Numeric
from jobs.evaluation.spec import ScorerSpec
from tests.support.scored_rows import scored, value

pytestmark = pytest.mark.quick

# What models write, and the number that they mean.
ANSWERS: list[tuple[str, float]] = [
    ("The answer is **1,234.50** dollars.", 1234.5),
    ("So we have 3 + 4 = 7 apples", 7),
    ("\\boxed{42}", 42),
    ("Thus $x = \\boxed{-\\frac{3}{4}}$, which is less than 5.", -0.75),
    ("\\boxed{x = 5} and 2 \\boxed{7", 7),
    ("\\boxed{\\text{none}} but 3", 3),
    ("Janet makes 9 * 2 = $<<9*2=18>>18 every day.\n#### 18", 18),
    ("She pays $1,000/month.", 1000),
    ("It costs -$5.20", -5.2),
    ("It costs $-5.20.", -5.2),
    ("\\$18", 18),
    ("€ 12", 12),
    ("So 10 - 3 = 7", 7),
    ("10-3", 3),
    ("f(2)-3", 3),
    ("x=-3", -3),
    ("(\u22127)", -7),
    ("+8", 8),
    ("pages 10\u201315", 15),
    ("2020-2024", 2024),
    ("- 5 apples", 5),
    ("is 42.", 42),
    ("is .5", 0.5),
    ("1 3/4 cups", 1.75),
    ("3/4", 0.75),
    ("7 / 8", 0.875),
    ("on 3/4/2024", 2024),
    ("3/0", 0),
    ("\\dfrac{1}{2}", 0.5),
    ("1\u00bd", 1.5),
    ("\u2153", 1 / 3),
    ("1.5e-3", 0.0015),
    ("2E5", 200_000),
    ("1.5 \u00d7 10^3", 1500),
    ("1.5 \\times 10^{-3}", 0.0015),
    ("5 * 10**3", 5000),
    ("1'234'567", 1_234_567),
    ("1\u202f234,5", 5),
    ("1\u00a0234", 1234),
    ("12,345,678.9 million", 12345678.9),
    ("5,000, to be exact", 5000),
    ("1,2", 2),
    ("H2O has 3 atoms, x2", 3),
    ("the 7th", 7),
    ("5km", 5),
    ("at 12:30", 30),
    ("\u0663", 3),
    ("007", 7),
    ("12345678901234567890", 12345678901234567890),
]


@pytest.mark.parametrize(("answer", "number"), ANSWERS)
def test_what_models_write(answer: str, number: float) -> None:
    found = Numeric().found(answer)
    if answer == "3/0":
        assert found is not None
        assert value("numeric", answer, 3) == value("numeric", answer, 0) == 0
        return
    assert found is not None
    assert found.value == number
    assert value("numeric", answer, number) == 1
    assert value("numeric", answer, number + 1) == 0


@pytest.mark.parametrize("answer", ["", "none", "x2", "H2O", "seven", "a_1", "-", "%", "."])
def test_answers_without_a_number_are_wrong(answer: str) -> None:
    assert scored("numeric", answer, 2) == Score(0.0, "no number")


@pytest.mark.parametrize("target", ["none", True, [False], math.nan, math.inf, {}])
def test_targets_without_a_number_are_missing(target: Any) -> None:
    assert scored("numeric", "5", target) == Score(None, "the target has no number")


@pytest.mark.parametrize(
    ("answer", "target", "options", "worth"),
    [
        ("12%", 12, {}, 1),
        ("12%", 0.12, {}, 1),
        ("12.34 \\%", 0.1234, {}, 1),
        ("0.12", "12%", {}, 1),
        ("12", "12 %", {}, 1),
        ("0.12%", "12%", {}, 0),
        ("1,200%", 12, {}, 1),
        ("1,200%", "12%", {}, 0),
        ("5", ["4", 5], {}, 1),
        ("0.25", Decimal("0.250"), {}, 1),
        ("5", "so 4 + 1 = 5 #### 5", {}, 1),
        ("3.14", math.pi, {}, 0),
        ("3.14", math.pi, {"tolerance": 0.01}, 1),
        ("3.14", math.pi, {"relative": 0.001}, 1),
        ("3.14", math.pi, {"relative": 0.0001}, 0),
        ("-3.14", -math.pi, {"relative": 0.001}, 1),
        ("99", 100, {"tolerance": 1}, 1),
        ("98", 100, {"tolerance": 1, "relative": 0.015}, 0),
        ("98", 100, {"tolerance": 1, "relative": 0.02}, 1),
        ("0.1", 0.1 + 1e-12, {}, 1),
        ("12345678901234567890", 12345678901234567891, {}, 0),
        ("5 and 6", 5, {"take": "first"}, 1),
        ("5 and 6", 5, {}, 0),
        ("1.234,50 €", 1234.5, {"decimal": ","}, 1),
        ("0,5", 0.5, {"decimal": ","}, 1),
        ("1e9999", "1e9999", {}, 0),
        ("9" * 400, 5, {}, 0),
    ],
)
def test_when_a_number_is_the_target(
    answer: str, target: Any, options: dict[str, Any], worth: float
) -> None:
    assert value("numeric", answer, target, **options) == worth


def test_the_note_is_what_was_found() -> None:
    assert scored("numeric", "So **1,234.50** it is.", 1) == Score(0.0, "1,234.50")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tolerance": -1}, "options.tolerance is -1.0; it must be 0 or more"),
        ({"relative": math.nan}, "options.relative is nan"),
        ({"tolerance": "x"}, "options.tolerance is 'x'; it must be a number"),
        ({"decimal": ";"}, "options.decimal is ';'; it must be one of '.', ','"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScorerSpec("n", "numeric", options).make()


@given(st.integers(-(10**20), 10**20), st.sampled_from([",", "_", "'", "\u202f", ""]))
def test_integers_in_groups_of_three(number: int, separator: str) -> None:
    text = f"{number:,}".replace(",", separator)
    found = Numeric().found(f"We get **{text}**.")
    assert found is not None
    assert found.value == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_as_python_writes_them(number: float) -> None:
    assert value("numeric", f"x = {number!r}.", number) == 1


@given(st.fractions(max_denominator=999).filter(lambda f: abs(f) < 10**6))
def test_fractions(number: Fraction) -> None:
    text = f"{number.numerator}/{number.denominator}"
    assert value("numeric", f"p = {text}", number.numerator / number.denominator) == 1


@given(st.text(alphabet="0123456789.,-+eE%/ '\\{}frac$x\u00bd^*()"))
def test_no_text_is_too_much(text: str) -> None:
    score = scored("numeric", text, 1)
    assert score.value in (0.0, 1.0)


@pytest.mark.parametrize(
    "text", ["9" * 70_000, "1,234" * 15_000, ",234" * 15_000, "1/" * 30_000, "1 " * 30_000,
             "\\boxed{" * 9_000, "\\frac{1}" * 8_000, "- " * 30_000, "1e" * 30_000]
)  # fmt: skip
def test_long_texts_take_no_long_time(text: str) -> None:
    assert scored("numeric", text, "x 12").value == 0
