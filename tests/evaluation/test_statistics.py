"""Intervals and tests of statistics."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.evaluation import statistics
from jobs.evaluation.statistics import (
    RESAMPLES,
    bootstrap,
    mcnemar,
    paired_bootstrap,
    resampled_sums,
    wilson,
)

pytestmark = pytest.mark.quick

SCORES = st.lists(st.floats(-1, 1), min_size=1, max_size=30)
SHARES = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("successes", "rows", "low", "high"),
    # R. G. Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611),
     (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_wilson_as_published(successes: int, rows: int, low: float, high: float) -> None:
    assert wilson(successes, rows) == pytest.approx((low, high), abs=5e-5)


@given(SHARES)
def test_the_ends_of_wilson_solve_the_score_equation(share: tuple[int, int]) -> None:
    successes, rows = share
    z = 1.959963984540054
    for end in wilson(successes, rows):
        distance = abs(successes / rows - end)
        assert distance == pytest.approx(z * math.sqrt(end * (1 - end) / rows), abs=1e-9)


@given(SHARES)
def test_wilson_has_bounds_and_symmetry(share: tuple[int, int]) -> None:
    successes, rows = share
    low, high = wilson(successes, rows)
    assert 0 <= low <= successes / rows <= high <= 1
    assert low < high
    mirrored = wilson(rows - successes, rows)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@given(SHARES)
def test_wilson_grows_with_successes_and_narrows_with_rows(share: tuple[int, int]) -> None:
    successes, rows = share
    low, high = wilson(successes, rows)
    if successes < rows:
        more = wilson(successes + 1, rows)
        assert low < more.low
        assert high < more.high or more.high == 1
    twice = wilson(2 * successes, 2 * rows)
    assert twice.high - twice.low < high - low
    surer = wilson(successes, rows, 0.99)
    assert surer.low <= low
    assert high <= surer.high


@pytest.mark.parametrize(("successes", "rows"), [(0, 0), (2, 1), (-1, 5)])
def test_what_is_no_share(successes: int, rows: int) -> None:
    with pytest.raises(ValueError, match="is no share"):
        wilson(successes, rows)


def exact_mcnemar(better: int, worse: int) -> Fraction:
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**n))


@settings(max_examples=50)
@given(st.integers(0, 900), st.integers(0, 900))
def test_mcnemar_is_exact(better: int, worse: int) -> None:
    assert mcnemar(better, worse) == pytest.approx(float(exact_mcnemar(better, worse)), rel=1e-9)
    assert mcnemar(better, worse) == mcnemar(worse, better)
    assert 0 <= mcnemar(better, worse) <= 1
    assert mcnemar(better, better) == 1


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (0, 5, 0.0625), (0, 6, 0.03125), (1, 9, 22 / 1024), (3, 5, 0.7265625),
     (5, 6, 1.0), (0, 2_000, 0.0)],
)  # fmt: skip
def test_mcnemar_by_hand(better: int, worse: int, p: float) -> None:
    assert mcnemar(better, worse) == pytest.approx(p, rel=0, abs=1e-300)


def test_mcnemar_of_many_rows_is_near_the_normal_distribution() -> None:
    # z = (|b - c| - 1) / sqrt(b + c) = 1.96
    better, worse = 500_000 - 980, 500_000 + 981
    assert mcnemar(better, worse) == pytest.approx(0.05, abs=3e-4)
    with pytest.raises(ValueError, match="not negative"):
        mcnemar(-1, 5)


@settings(max_examples=20)
@given(SCORES, st.integers(0, 2**63 - 1))
def test_a_bootstrap_is_within_the_values_and_knows_its_seed(
    values: list[float], seed: int
) -> None:
    array = np.array(values)
    low, high = bootstrap(array, seed)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert bootstrap(array, seed) == (low, high)
    assert bootstrap(array[::-1], seed) == (low, high)
    surer = bootstrap(array, seed, 0.99)
    assert surer.low <= low
    assert high <= surer.high


@settings(max_examples=20)
@given(SCORES)
def test_a_paired_bootstrap_is_symmetric(values: list[float]) -> None:
    array = np.array(values)
    there, back = paired_bootstrap(array, 1), paired_bootstrap(-array, 1)
    assert there.difference == pytest.approx(-back.difference)
    # Others are drawn: it is the same but for chance.
    assert there.p_value == pytest.approx(back.p_value, abs=0.1)
    assert 0 < there.p_value <= 1
    assert there.low <= there.high


def means_of_all_resamples(values: list[float]) -> list[float]:
    return [sum(drawn) / len(values) for drawn in itertools.product(values, repeat=len(values))]


@pytest.mark.parametrize("values", [[0.0, 0.1, 0.5, 0.9, 1.0], [0.0, 0.0, 1.0, 1.0, 0.5, 0.5]])
@pytest.mark.parametrize("cost", [0, 99], ids=["counts", "rows"])
def test_the_drawn_means_are_those_of_all_resamples(
    values: list[float], cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By rows, and by how often each of the values is drawn."""
    monkeypatch.setattr(statistics, "_COST", cost)
    drawn = np.sort(statistics._means(np.array(values), 0))
    exact = np.sort(means_of_all_resamples(values))
    assert len(drawn) == RESAMPLES
    points = np.linspace(0.025, 0.975, 39)
    shares = np.searchsorted(drawn, np.quantile(exact, points) + 1e-9) / len(drawn)
    expected = np.searchsorted(exact, np.quantile(exact, points) + 1e-9) / len(exact)
    assert np.abs(shares - expected).max() < 0.04  # Kolmogorov: 0.03 at 5 % for 2,000


def test_the_p_value_is_that_of_all_resamples() -> None:
    values = [-0.3, -0.2, 0.1, -0.4, 0.2]
    means = np.array(means_of_all_resamples(values))
    exact = 2 * min((means <= 1e-12).mean(), (means >= -1e-12).mean())
    found = paired_bootstrap(np.array(values), 0)
    assert found.p_value == pytest.approx(exact, abs=0.03)
    assert found.difference == pytest.approx(-0.12)
    assert found.low < found.difference < found.high


@pytest.mark.parametrize("digits", [1, 17], ids=["few values", "all different"])
def test_of_many_rows_it_is_the_interval_of_the_normal_distribution(digits: int) -> None:
    values = np.random.default_rng(3).beta(2, 5, 3_000).round(digits)
    low, high = bootstrap(values, 0)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=half * 0.1)
    assert high == pytest.approx(values.mean() + half, abs=half * 0.1)


def test_what_is_always_the_same_and_what_is_nothing() -> None:
    assert bootstrap(np.full(9, 0.3), 0) == pytest.approx((0.3, 0.3))
    nothing = paired_bootstrap(np.zeros(9), 0)
    assert nothing == (0, 0, 0, 1)
    assert paired_bootstrap(np.full(9, -0.1), 0).p_value == pytest.approx(2 / (RESAMPLES + 1))
    with pytest.raises(ValueError, match="no values"):
        bootstrap(np.array([]), 0)


@pytest.mark.parametrize("at_once", [1, 7, 50, 5_000])
def test_memory_is_bounded_by_drawing_a_few_at_a_time(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "_AT_ONCE", at_once)
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    values = np.random.default_rng(5).random(20)
    means = statistics._means(values, 0)
    assert len(means) == 200
    assert means.mean() == pytest.approx(values.mean(), abs=0.02)
    assert means.std() == pytest.approx(values.std() / math.sqrt(20), rel=0.2)


def test_sums_of_rows_are_drawn_together() -> None:
    counts = np.array([[1.0, 10], [2, 20], [3, 30], [5, 50]])
    sums = np.array(list(resampled_sums(counts, 0)))
    assert sums.shape == (RESAMPLES, 2)
    assert (sums[:, 1] == 10 * sums[:, 0]).all()
    assert sums[:, 0].mean() == pytest.approx(11, abs=0.3)
    again = np.array(list(resampled_sums(counts[::-1], 0)))
    assert (again == sums).all()
