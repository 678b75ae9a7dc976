"""Rows of two runs side by side, out of their files of scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from jobs.evaluation.compare import SAME, Side, compare, pair
from jobs.records.evaluations import ComparisonRecord, Role
from jobs.report.scores_file import ScoreColumns, batches

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
    """Two runs, row by row.

    Args:
        scorers: those that both have scores of.

    Raises:
        OutputError: a file is damaged.
    """

    def __init__(self, before: Path, now: Path, scorers: Sequence[str]) -> None:
        self._scorers = scorers
        self._before, self._now = ScoreColumns(before, scorers), ScoreColumns(now, scorers)
        self._pairing = pair(self._now.keys, self._before.keys)

    def changes(self, falling: Collection[str], limit: int) -> Changes:
        """The rows that scorers say another thing of than before.

        Args:
            falling: scorers of which a lower score is the better one.
            limit: most rows that are shown, of those that got worse and of those that got better.
        """
        i, j = self._pairing.then, self._pairing.now
        signs = np.array([[-1.0 if name in falling else 1.0] for name in self._scorers])
        moved = signs * (self._now.values[:, j] - self._before.values[:, i])
        # What only one of the two has a score for is no change: the table says how many there are.
        moved[np.isnan(moved) | (np.abs(moved) <= SAME)] = 0.0
        lowest, highest = moved.min(axis=0, initial=0.0), moved.max(axis=0, initial=0.0)
        worse = np.flatnonzero(lowest < 0)
        better = np.flatnonzero((lowest == 0) & (highest > 0))
        rows = self._now.rows[j]
        first_worse = worse[np.lexsort((rows[worse], lowest[worse]))][:limit]
        first_better = better[np.lexsort((rows[better], -highest[better]))][:limit]
        examples = self._examples(np.concatenate([first_worse, first_better]), moved)
        return Changes(
            pairs=len(i),
            only_before=len(self._pairing.only_then),
            only_now=len(self._pairing.only_now),
            worse=len(worse),
            better=len(better),
            worse_rows=tuple(examples[: len(first_worse)]),
            better_rows=tuple(examples[len(first_worse) :]),
        )

    def comparisons(
        self, names: Sequence[str], other_id: str, seed: int
    ) -> dict[str, ComparisonRecord]:
        """Differences of some scorers, found as those are that SQL holds."""
        found = {}
        for name in names:
            k = self._scorers.index(name)
            now, before = Side(self._now.values[k]), Side(self._before.values[k])
            # The role is nobody's business here: it is the run that was asked for.
            found[name] = compare(name, Role.PREVIOUS, other_id, self._pairing, now, before, seed)
        return found

    def _examples(self, pairs: Any, moved: Any) -> list[Example]:
        i, j = self._pairing.then[pairs], self._pairing.now[pairs]
        then, today = self._before.texts(i), self._now.texts(j)
        found = []
        for k, before, now in zip(pairs, i, j, strict=True):
            old, new = then[int(before)], today[int(now)]
            changed = tuple(n for n, by in zip(self._scorers, moved[:, k], strict=True) if by)
            found.append(
                Example(
                    new["row_index"], new["custom_id"], new["prompt"] or "", new["target"],
                    changed, _shown_side(old, self._scorers), _shown_side(new, self._scorers),
                )
            )  # fmt: skip
        return found


def reasons(path: Path, scorers: Sequence[str]) -> tuple[Reason, ...]:
    """Why rows have no scores, by scorer, the most frequent first.

    Raises:
        OutputError: the file is damaged.
    """
    counted: dict[str, Counter[str]] = {name: Counter() for name in scorers}
    names = [f"{kind}.{name}" for name in scorers for kind in ("score", "note")]
    for batch in batches(path, ["error", *names]):
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
