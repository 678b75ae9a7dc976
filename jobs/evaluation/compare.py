"""Two evaluations of one series compared, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.evaluation import statistics
from jobs.evaluation.aggregate import is_binary
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.statistics import Floats
from jobs.records.evaluations import ComparisonRecord, Method, Role

# Scores that are nearer are the same: means and F-measures are rounded.
SAME = 1e-12

_Places = npt.NDArray[np.int64]
_Keys = Sequence[str] | npt.NDArray[np.bytes_]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which row of now is which row of then.

    Attributes:
        now, then: places of the two rows of each pair, in the order of now.
        only_now, only_then: places of the rows that have no partner.
    """

    now: _Places
    then: _Places
    only_now: _Places
    only_then: _Places


@dataclass(frozen=True, slots=True)
class Flip:
    """A row whose score changed.

    Attributes:
        now, then: its places in the two evaluations.
    """

    now: int
    then: int
    after: float
    before: float


def pair(now: _Keys, then: _Keys) -> Pairing:
    """Rows of one key are pairs, wherever they stand.

    Rows that are the same in prompt, target and custom_id have one key; the first of them is
    paired with the first, and so on. What one side has more of has no partner.

    Args:
        now, then: the `row_key` of each row.
    """
    keys = np.concatenate([np.asarray(now, "S"), np.asarray(then, "S")])
    numbers = np.unique(keys, return_inverse=True)[1].reshape(-1)
    ours, theirs = numbers[: len(now)], numbers[len(now) :]
    most = len(keys) + 1
    ours, theirs = (side.astype(np.int64) * most + _occurrence(side) for side in (ours, theirs))
    _, first, second = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    order = np.argsort(first, kind="stable")
    first, second = first[order], second[order]
    return Pairing(
        first,
        second,
        np.setdiff1d(np.arange(len(ours)), first, assume_unique=True),
        np.setdiff1d(np.arange(len(theirs)), second, assume_unique=True),
    )


def _occurrence(numbers: npt.NDArray[Any]) -> _Places:
    """Of each number, how often it was there before."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(numbers) else order
    lengths = np.diff(np.r_[begins, len(numbers)])
    found = np.empty(len(numbers), np.int64)
    found[order] = np.arange(len(numbers)) - np.repeat(begins, lengths)
    return found


@dataclass(frozen=True, slots=True)
class Side:
    """The scores of one scorer in one evaluation.

    Attributes:
        values: of each row; NaN where it has none.
        counts: what each row adds to the sums of a corpus, see `aggregate.corpus_counts`.
    """

    values: Floats
    counts: Floats | None = None


def compare(
    scorer: str,
    role: Role,
    other_id: str,
    pairing: Pairing,
    now: Side,
    then: Side,
    seed: int = 0,
    corpus: CorpusScorer | None = None,
) -> ComparisonRecord:
    """What changed in a score.

    Args:
        other_id: the evaluation of then.
        corpus: the scorer, where the value of rows is that of their texts together; both sides
            have counts.
    """
    before, after = then.values[pairing.then], now.values[pairing.now]
    both = ~np.isnan(before) & ~np.isnan(after)
    alone = int((np.isnan(before) != np.isnan(after)).sum())
    alone += int((~np.isnan(now.values[pairing.only_now])).sum())
    alone += int((~np.isnan(then.values[pairing.only_then])).sum())
    before, after = before[both], after[both]
    changes = after - before
    better, worse = int((changes > SAME).sum()), int((changes < -SAME).sum())
    pairs = len(changes)
    if pairs == 0:
        return ComparisonRecord(
            role, scorer, other_id, 0, 0, 0, alone, None, None, None, None, None
        )
    method = Method.BOOTSTRAP
    if corpus is not None and now.counts is not None and then.counts is not None:
        change = _of_corpus(
            corpus, now.counts[pairing.now][both], then.counts[pairing.then][both], seed
        )
    else:
        change = statistics.paired_bootstrap(changes, seed)
        if is_binary(before) and is_binary(after):
            method = Method.MCNEMAR
            change = change._replace(p_value=statistics.mcnemar(better, worse))
    return ComparisonRecord(
        role,
        scorer,
        other_id,
        pairs,
        better,
        worse,
        alone,
        change.difference,
        change.low,
        change.high,
        change.p_value,
        method,
    )


def _of_corpus(scorer: CorpusScorer, now: Floats, then: Floats, seed: int) -> statistics.Change:
    """The difference of two corpora, whose rows are drawn together."""
    width = now.shape[1]

    def difference(sums: Floats) -> float:
        return scorer.value(sums[:width]) - scorer.value(sums[width:])

    together = np.hstack([now, then])
    resampled = [difference(sums) for sums in statistics.resampled_sums(together, seed)]
    return statistics.change_of(difference(together.sum(0)), np.array(resampled))


def flips(pairing: Pairing, now: Floats, then: Floats, most: int | None = None) -> list[Flip]:
    """Rows whose score changed: the greatest losses first, and gains after them.

    Args:
        now, then: the scores of all rows; NaN where a row has none.
        most: how many of the losses, and of the gains.
    """
    before, after = then[pairing.then], now[pairing.now]
    with np.errstate(invalid="ignore"):
        changes = after - before
    losses = np.flatnonzero(changes < -SAME)
    gains = np.flatnonzero(changes > SAME)
    losses = losses[np.argsort(changes[losses], kind="stable")][:most]
    gains = gains[np.argsort(-changes[gains], kind="stable")][:most]
    return [
        Flip(int(pairing.now[i]), int(pairing.then[i]), float(after[i]), float(before[i]))
        for i in (*losses, *gains)
    ]
