"""Rows of two runs side by side, out of their files of scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from jobs.evaluation.compare import SAME, compare, pair
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.scores_file import ScoresFile
from jobs.evaluation.statistics import Floats
from jobs.records.evaluations import ComparisonRecord, Role

MAX_KEPT = 20_000  # characters of a text that are kept: what is compared on the page is shorter
_TEXTS = ("row_index", "custom_id", "prompt", "target", "answer", "error")
_MOST_REASONS = 1_000  # that are told apart while they are counted
SHOWN_REASONS = 12
_OTHERS = "other reasons"


@dataclass(frozen=True, slots=True)
class ShownSide:
    """What a row was in one of the runs.

    Attributes:
        scores: by scorer; None where it has none.
    """

    answer: str | None
    error: str | None
    scores: Mapping[str, float | None]
    notes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Example:
    """A row that was scored differently.

    Attributes:
        changed: the scorers that say so.
    """

    row_index: int
    custom_id: str | None
    prompt: str
    target: str | None
    changed: tuple[str, ...]
    before: ShownSide
    now: ShownSide


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that were scored differently.

    Attributes:
        pairs: rows that are in both runs.
        only_before, only_now: rows that are in one of them only.
        worse, better: how many rows at least one scorer found worse; how many others were
            found better.
        worse_rows, better_rows: the first of them, the largest change first.
    """

    pairs: int
    only_before: int
    only_now: int
    worse: int
    better: int
    worse_rows: tuple[Example, ...]
    better_rows: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows have no score: the code of their error, or the scorer's own words."""

    scorer: str
    reason: str
    rows: int


class TwoRuns:
    """Two runs, row by row. Of all rows only keys and scores are held.

    Args:
        scorers: those that both have scores of.

    Raises:
        OutputError: a file is damaged.
    """

    def __init__(self, before: ScoresFile, now: ScoresFile, scorers: Sequence[str]) -> None:
        self._scorers = scorers
        self._files = before, now
        self._pairing = pair(now.keys(), before.keys())
        self._before = [before.side(name) for name in scorers]
        self._now = [now.side(name) for name in scorers]

    def changes(self, falling: Collection[str], limit: int) -> Changes:
        """The rows that scorers say another thing of than before.

        Args:
            falling: scorers of which a lower score is the better one.
            limit: most rows that are shown, of those that got worse and of those that got better.
        """
        moved = self._moves(falling)
        lowest, highest = moved.min(axis=0, initial=0.0), moved.max(axis=0, initial=0.0)
        worse = np.flatnonzero(lowest < 0)
        better = np.flatnonzero((lowest == 0) & (highest > 0))
        first_worse = worse[np.argsort(lowest[worse], kind="stable")][:limit]
        first_better = better[np.argsort(-highest[better], kind="stable")][:limit]
        examples = self._examples(np.concatenate([first_worse, first_better]), moved)
        return Changes(
            pairs=len(self._pairing.now),
            only_before=len(self._pairing.only_then),
            only_now=len(self._pairing.only_now),
            worse=len(worse),
            better=len(better),
            worse_rows=tuple(examples[: len(first_worse)]),
            better_rows=tuple(examples[len(first_worse) :]),
        )

    def comparison(
        self, name: str, other_id: str, seed: int, corpus: CorpusScorer | None
    ) -> ComparisonRecord:
        """The difference of a scorer, found as those are that SQL holds."""
        k = self._scorers.index(name)
        # The role is nobody's business here: it is the run that was asked for.
        return compare(
            name,
            Role.PREVIOUS,
            other_id,
            self._pairing,
            self._now[k],
            self._before[k],
            seed,
            corpus,
        )

    def _moves(self, falling: Collection[str]) -> Floats:
        """Of each scorer and pair, how much better it got; 0 where one of the two has no score."""
        moved = np.zeros((len(self._scorers), len(self._pairing.now)))
        sides = zip(self._scorers, self._now, self._before, strict=True)
        for row, (name, now, before) in zip(moved, sides, strict=True):
            by = now.values[self._pairing.now] - before.values[self._pairing.then]
            by[np.isnan(by) | (np.abs(by) <= SAME)] = 0.0
            row[:] = -by if name in falling else by
        return moved

    def _examples(self, pairs: Any, moved: Floats) -> list[Example]:
        i, j = (side[pairs].tolist() for side in (self._pairing.then, self._pairing.now))
        own = [f"{kind}.{name}" for name in self._scorers for kind in ("score", "note")]
        (then, today) = (
            file.rows(places, [*_TEXTS, *own])
            for file, places in zip(self._files, (i, j), strict=True)
        )
        found = []
        for k, before, now in zip(pairs, i, j, strict=True):
            old, new = _cut(then[before]), _cut(today[now])
            changed = tuple(n for n, by in zip(self._scorers, moved[:, k], strict=True) if by)
            found.append(
                Example(
                    new["row_index"], new["custom_id"], new["prompt"], new["target"], changed,
                    _shown_side(old, self._scorers), _shown_side(new, self._scorers),
                )
            )  # fmt: skip
        return found


def _cut(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v[:MAX_KEPT] if isinstance(v, str) else v for k, v in row.items()}


def reasons(file: ScoresFile) -> tuple[Reason, ...]:
    """Why rows have no scores, by scorer, the most frequent first.

    Raises:
        OutputError: the file is damaged.
    """
    scorers = file.scorers
    counted: dict[str, Counter[str]] = {name: Counter() for name in scorers}
    names = [f"{kind}.{name}" for name in scorers for kind in ("score", "note")]
    for batch in file.batches(["error", *names]):
        for name in scorers:
            rows = batch.filter(pc.is_null(batch.column(f"score.{name}")))
            told = pc.coalesce(rows.column("error"), rows.column(f"note.{name}"), "no reason given")
            for reason, number in zip(*_counts(told), strict=True):
                counter = counted[name]
                known = reason in counter or len(counter) < _MOST_REASONS
                counter[reason if known else _OTHERS] += number
    found: list[Reason] = []
    for name, counter in counted.items():
        others = counter.pop(_OTHERS, 0)
        most = counter.most_common(SHOWN_REASONS)
        others += counter.total() - sum(number for _, number in most)
        found += [Reason(name, reason, number) for reason, number in most]
        found += [Reason(name, _OTHERS, others)] if others else []
    return tuple(found)


def _shown_side(row: Mapping[str, Any], scorers: Sequence[str]) -> ShownSide:
    return ShownSide(
        row["answer"],
        row["error"],
        {name: row[f"score.{name}"] for name in scorers},
        {name: row[f"note.{name}"] for name in scorers},
    )


def _counts(values: Any) -> tuple[list[str], list[int]]:
    counts = pc.value_counts(values)
    return counts.field("values").to_pylist(), counts.field("counts").to_pylist()
