"""Scores summed up: over all rows, and over the rows of each slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from jobs.evaluation import statistics
from jobs.evaluation.rows import Score, ScoredRow, as_text
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.statistics import Floats
from jobs.records.evaluations import Interval, ScoreRecord
from jobs.storable import storable

MAX_SLICES = 50  # values of one column; the rarer ones are one slice together
MAX_VALUES = 10_000  # of one column that are told apart at all
MAX_VALUE = 200  # characters of a value
NULL = "(null)"
OTHER = "(other)"


class Aggregator:
    """Takes scores in batches, and sums them up in the end.

    It keeps 8 bytes for each row and scorer, 4 for each row and slice column, and for `bleu` and
    `chrf` what each row adds to the sums, some 80 to 200 bytes.

    Args:
        slices: columns of the rows.
        seed: of all that is drawn.
    """

    def __init__(
        self, scorers: Mapping[str, Scorer], slices: Sequence[str] = (), seed: int = 0
    ) -> None:
        self._scorers = scorers
        self._seed = seed
        self._values: dict[str, list[Floats]] = {name: [] for name in scorers}
        self._counts: dict[str, list[Floats]] = {name: [] for name in scorers}
        self._slices = {column: _Column(column) for column in slices}

    def add(self, rows: Sequence[ScoredRow], scores: Mapping[str, Sequence[Score]]) -> None:
        """Take a batch: the scores of each scorer, in the order of the rows."""
        for name, scorer in self._scorers.items():
            given = [score.value for score in scores[name]]
            if len(given) != len(rows):
                raise ValueError(f"{name} has {len(given)} scores of {len(rows)} rows")
            values = np.array([np.nan if v is None else v for v in given], np.float64)
            self._values[name].append(values)
            if isinstance(scorer, CorpusScorer):
                self._counts[name].append(corpus_counts(scores[name]))
        for column in self._slices.values():
            column.add(rows)

    def result(self) -> list[ScoreRecord]:
        """What came out: each scorer of all rows, and then by columns and their values."""
        records = []
        parts = [part for column in self._slices.values() for part in column.parts()]
        for name, scorer in self._scorers.items():
            values = _joined(self._values[name])
            counts = _joined(self._counts[name]) if isinstance(scorer, CorpusScorer) else None
            records.append(self._record(name, "", "", values, counts))
            for column, value, chosen in parts:
                part = None if counts is None else counts[chosen]
                records.append(self._record(name, column, value, values[chosen], part))
        return records

    def _record(
        self, name: str, column: str, value: str, values: Floats, counts: Floats | None
    ) -> ScoreRecord:
        scorer = self._scorers[name]
        scored = ~np.isnan(values)
        rows = int(scored.sum())
        missing = len(values) - rows
        if rows == 0:
            return ScoreRecord(name, column, value, 0, missing, None, None, None, None)
        if isinstance(scorer, CorpusScorer) and counts is not None:
            mean, (low, high) = _of_corpus(scorer, counts[scored], self._seed)
            interval = Interval.BOOTSTRAP
        else:
            mean, (low, high), interval = summary(values[scored], self._seed)
        return ScoreRecord(name, column, value, rows, missing, mean, low, high, interval)


def summary(values: Floats, seed: int) -> tuple[float, statistics.Range, Interval]:
    """The mean of scores, with the interval that fits them."""
    mean = float(values.mean())
    if is_binary(values):
        right = int(values.sum())
        return mean, statistics.wilson(right, len(values)), Interval.WILSON
    return mean, statistics.bootstrap(values, seed), Interval.BOOTSTRAP


def is_binary(values: Floats) -> bool:
    """Whether all scores are 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


def corpus_counts(scores: Sequence[Score]) -> Floats:
    """What each row adds to the sums of a corpus; zeros where it is missing: [rows, counts]."""
    counts = [score.counts for score in scores]
    width = max((len(c) for c in counts if c is not None), default=0)
    none = (0,) * width
    return np.array([none if c is None else c for c in counts], np.float64).reshape(
        len(scores), width
    )


def _of_corpus(scorer: CorpusScorer, counts: Floats, seed: int) -> tuple[float, statistics.Range]:
    resampled = [scorer.value(sums) for sums in statistics.resampled_sums(counts, seed)]
    return scorer.value(counts.sum(0)), statistics.percentiles(np.array(resampled))


def _joined(pieces: list[Floats]) -> Floats:
    """Batches as one; those without a row that counts have no columns."""
    wide = [piece for piece in pieces if piece.ndim == 1 or piece.shape[1]]
    if len(wide) < len(pieces) and wide:
        width = wide[0].shape[1]
        pieces = [p if p.shape[1] else np.zeros((len(p), width)) for p in pieces]
    return np.concatenate(pieces) if pieces else np.zeros(0)


class _Column:
    """The values of a slice column, by numbers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers: dict[str, int] = {OTHER: 0}
        self._rows: list[npt.NDArray[np.int32]] = []

    def add(self, rows: Sequence[ScoredRow]) -> None:
        self._rows.append(
            np.array([self._number(slice_text(r.columns.get(self._name))) for r in rows], np.int32)
        )

    def _number(self, value: str) -> int:
        number = self._numbers.get(value)
        if number is None:
            if len(self._numbers) > MAX_VALUES:
                return 0
            number = self._numbers[value] = len(self._numbers)
        return number

    def parts(self) -> list[tuple[str, str, npt.NDArray[np.bool_]]]:
        """The column, a value, and which rows have it; the rarest are one part together."""
        if not self._rows:
            return []
        numbers = np.concatenate(self._rows)
        often = np.bincount(numbers, minlength=len(self._numbers))
        values = sorted(self._numbers.keys() - {OTHER})
        values.sort(key=lambda value: -often[self._numbers[value]])
        kept = sorted(values[:MAX_SLICES])
        parts = [(self._name, value, numbers == self._numbers[value]) for value in kept]
        rest = ~np.isin(numbers, [self._numbers[value] for value in kept])
        if rest.any():
            parts.append((self._name, OTHER, rest))
        return parts


def slice_text(value: Any) -> str:
    """A value of a column, as the slice of its rows is called."""
    if value is None:
        return NULL
    if isinstance(value, Mapping | list | tuple):
        text = orjson.dumps(value, default=str).decode()
    else:
        text = as_text(value)
    # In the form in which SQL keeps it, before it is cut: what is the same there is one slice.
    text = storable(text)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
