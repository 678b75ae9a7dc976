"""How the numbers of a report were found, in words; only of what it shows."""

from __future__ import annotations

from jobs.evaluation.statistics import RESAMPLES
from jobs.records.evaluations import Interval, Method
from jobs.report.data import Results

_VALUES = (
    "A value is the mean of the scores of all rows that have one; corpus scores (BLEU, chrF) are "
    "of all answers together. Rows without a score are missing: they count for no mean."
)
_INTERVALS = {
    Interval.WILSON: "Wilson: the score interval of a share, for scores that are 0 or 1.",
    Interval.BOOTSTRAP: f"Bootstrap intervals: rows are drawn anew {RESAMPLES:,} times, with "
    "replacement and from a fixed seed; the interval holds the middle 95% of the values.",
}
_PAIRS = (
    "Differences are of pairs: a row and its score in both runs, found by the row's prompt, target "
    "and id. Their intervals are 95% intervals, too."
)
_TESTS = {
    Method.MCNEMAR: "McNemar: the exact two-sided binomial test of how many rows became right "
    "against how many became wrong.",
    Method.BOOTSTRAP: "Bootstrap p-values: twice the share of draws whose difference is on the "
    "other side of none, or there.",
}
_MANY = (
    "A p-value is of one scorer by itself: of many scorers or runs, some fall under the level by "
    "chance."
)


def methods(results: Results) -> list[str]:
    """Sentences for those who want to know."""
    intervals = {score.interval for score in results.scores.values()}
    compared = [c for column in results.columns for c in column.comparisons.values()]
    tests = {comparison.method for comparison in compared}
    return [
        _VALUES,
        *(sentence for kind, sentence in _INTERVALS.items() if kind in intervals),
        *([_PAIRS] if compared else []),
        *(sentence for kind, sentence in _TESTS.items() if kind in tests),
        *([_MANY] if tests - {None} else []),
    ]
