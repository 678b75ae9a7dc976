"""Intervals and tests, each with where it comes from. docs/evaluations.md tells when each is used.

All that is drawn at random comes from a seed, and depends on the values but not on their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 2_000
_AT_ONCE = 1 << 21  # numbers that are drawn at a time: 16 MiB
_EXACT = 1_000  # changed rows whose tail is summed in whole numbers
_COST = 5  # of how often a value is drawn, against one row that is


class Range(NamedTuple):
    low: float
    high: float


class Change(NamedTuple):
    """A difference with its interval and p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def wilson(successes: int, rows: int, level: float = LEVEL) -> Range:
    """The score interval of a share.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927). It stays between 0 and 1, and is no
    single point where all rows agree.

    Raises:
        ValueError: there are no rows, or more successes than rows.
    """
    if not 0 <= successes <= rows or rows == 0:
        raise ValueError(f"{successes} of {rows} is no share")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, square = successes / rows, z * z
    middle = share + square / (2 * rows)
    half = z * math.sqrt((share * (1 - share) + square / (4 * rows)) / rows)
    whole = 1 + square / rows
    low = 0.0 if successes == 0 else (middle - half) / whole
    return Range(low, 1.0 if successes == rows else (middle + half) / whole)


def bootstrap(values: Floats, seed: int, level: float = LEVEL) -> Range:
    """The percentile interval of a mean.

    Source: B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7
    (1979); percentile intervals: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap"
    (1993), chapter 13.

    Raises:
        ValueError: there are no values.
    """
    return percentiles(_means(values, seed), level)


def mcnemar(better: int, worse: int) -> float:
    """The exact two-sided p-value of rows that changed, where right and wrong are all there is.

    Under the hypothesis that nothing changed, a row that did is as likely to be better as to be
    worse: twice the smaller tail of the binomial distribution, at most 1. There is no continuity
    correction and no mid-p, which are approximations.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated
    proportions or percentages", Psychometrika 12 (1947); the exact form is the sign test.
    """
    few, changed = min(better, worse), better + worse
    if few < 0:
        raise ValueError("numbers of rows are not negative")
    if 2 * few == changed:
        return 1.0
    if changed <= _EXACT:
        tail = sum(math.comb(changed, k) for k in range(few + 1))
        return float(2 * tail / 2**changed)
    # The tail as its largest term, and what the others are of it.
    largest = (
        math.lgamma(changed + 1)
        - math.lgamma(few + 1)
        - math.lgamma(changed - few + 1)
        - changed * math.log(2)
    )
    k = np.arange(few, 0, -1, dtype=np.float64)
    ratios = np.cumprod(k / (changed - k + 1))
    return min(1.0, 2 * math.exp(largest) * (1 + float(ratios.sum())))


def paired_bootstrap(differences: Floats, seed: int, level: float = LEVEL) -> Change:
    """The mean of differences of pairs, its percentile interval, and a two-sided p-value.

    The p-value is twice the share of resamples whose mean is on the other side of 0, or on it;
    both the numerator and the denominator count the sample itself, so that it is never 0.

    Source: P. Koehn, "Statistical significance tests for machine translation evaluation", EMNLP
    (2004); Efron and Tibshirani (1993), chapter 15; the added one: A. Davison and D. Hinkley,
    "Bootstrap Methods and their Application" (1997), chapter 4.

    Raises:
        ValueError: there are no pairs.
    """
    return change_of(float(np.mean(differences)), _means(differences, seed), level)


def resampled_sums(counts: Floats, seed: int) -> Iterator[Floats]:
    """The sums of the columns over rows that are drawn with replacement, one resample at a time.

    Args:
        counts: [rows, columns].
    """
    ordered = counts[np.lexsort(counts.T)]
    random = np.random.default_rng(seed)
    rows = len(ordered)
    for _ in range(RESAMPLES):
        times = np.bincount(_places(random, rows, rows), minlength=rows)
        yield times @ ordered


def change_of(difference: float, resampled: Floats, level: float = LEVEL) -> Change:
    """A difference, by the same as it came out of each resample."""
    low, high = percentiles(resampled, level)
    beyond = min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
    return Change(difference, low, high, min(1.0, 2 * (1 + beyond) / (1 + len(resampled))))


def percentiles(values: Floats, level: float = LEVEL) -> Range:
    """The interval of a value that was computed for each resample."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Range(float(low), float(high))


def _means(values: Floats, seed: int) -> Floats:
    """Means of as many values, drawn with replacement, `RESAMPLES` times."""
    if not len(values):
        raise ValueError("there are no values to draw from")
    random = np.random.default_rng(seed)
    distinct, times = np.unique(values, return_counts=True)
    few = _COST * len(distinct) <= len(values)
    drawn = _by_counts if few else _by_rows
    at_once = max(1, _AT_ONCE // (len(distinct) if few else len(values)))
    pieces = []
    for start in range(0, RESAMPLES, at_once):
        resamples = min(at_once, RESAMPLES - start)
        pieces.append(drawn(random, distinct, times, resamples))
    return np.concatenate(pieces)


def _by_counts(random: Any, distinct: Floats, times: Any, resamples: int) -> Floats:
    """How often each of a few distinct values is drawn is all that matters."""
    rows = int(times.sum())
    drawn = random.multinomial(rows, times / rows, size=resamples)
    means: Floats = drawn @ distinct / rows
    return means


def _by_rows(random: Any, distinct: Floats, times: Any, resamples: int) -> Floats:
    values = np.repeat(distinct, times)
    rows = len(values)
    if resamples > 1:
        means: Floats = values[_places(random, rows, (resamples, rows))].mean(1)
        return means
    total = 0.0
    for start in range(0, rows, _AT_ONCE):
        total += float(values[_places(random, rows, min(_AT_ONCE, rows - start))].sum())
    return np.array([total / rows])


def _places(random: Any, rows: int, size: int | tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Rows that are drawn; half as wide as numpy's own integers, and so twice as fast."""
    places: npt.NDArray[np.uint32] = random.integers(rows, size=size, dtype=np.uint32)
    return places
