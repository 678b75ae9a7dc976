"""`bleu` and `chrf`, computed by sacrebleu."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from jobs.errors import PackageMissing
from jobs.evaluation.rows import Score, ScoredRow, accepted, as_text, missing
from jobs.evaluation.scorers.base import RowScorer
from jobs.extras import how_to_install


class CorpusScorer(RowScorer):
    """A scorer whose value of many rows is that of all their texts together.

    It sums up what it counts in each row, and makes the value of the sums. To count takes long, so
    each row is counted once: its score brings the counts along.
    """

    corpus = True

    def value(self, sums: Sequence[int] | npt.NDArray[Any]) -> float:
        """The value of rows, by their sums, from 0 to 1."""
        return _share(self._metric._compute_score_from_stats(list(sums)))

    def score_answer(self, row: ScoredRow) -> Score:
        if row.answer is None:
            return missing("no answer")
        targets = [as_text(target) for target in accepted(row.target)]
        # There is no public way to what a text adds; this one is what sacrebleu's own tests of
        # significance are built on.
        (found,) = self._metric._extract_corpus_statistics(
            [row.answer], [[target] for target in targets]
        )
        counts = tuple(map(int, found))
        value = _share(self._metric_of_one._compute_score_from_stats(list(counts)))
        return Score(value, counts=counts)

    def prepare(self) -> None:
        _ = self._metric, self._metric_of_one

    @functools.cached_property
    def _metric(self) -> Any:
        return self.metric(_sacrebleu(self.name))

    @functools.cached_property
    def _metric_of_one(self) -> Any:
        return self.metric(_sacrebleu(self.name), one=True)

    @abstractmethod
    def metric(self, sacrebleu: Any, one: bool = False) -> Any:
        """The metric of sacrebleu; `one` for a single text."""


@dataclass(frozen=True, kw_only=True)
class Bleu(CorpusScorer):
    """BLEU (Papineni et al., 2002; Post, 2018).

    Attributes:
        tokenize: sacrebleu's name of the way to words.
        lowercase: upper and lower case are the same.
    """

    name = "bleu"
    summary = "BLEU of all answers together, by sacrebleu"
    tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a"
    lowercase: bool = False

    def metric(self, sacrebleu: Any, one: bool = False) -> Any:
        # A short text has no 4-grams, and its score would be 0 for that alone.
        return sacrebleu.BLEU(lowercase=self.lowercase, tokenize=self.tokenize, effective_order=one)


@dataclass(frozen=True, kw_only=True)
class ChrF(CorpusScorer):
    """chrF (Popović, 2015), or with `word_order` 2 chrF++ (Popović, 2017).

    Attributes:
        word_order: the longest sequence of words that counts, beside those of characters.
        lowercase: upper and lower case are the same.
    """

    name = "chrf"
    summary = "chrF of all answers together, by sacrebleu"
    word_order: Literal[0, 1, 2] = 0
    lowercase: bool = False

    def metric(self, sacrebleu: Any, one: bool = False) -> Any:
        return sacrebleu.CHRF(word_order=self.word_order, lowercase=self.lowercase)


def _share(found: Any) -> float:
    """A score of sacrebleu, which rounding takes over 100 where texts are the same."""
    return min(1.0, float(found.score) / 100)


def _sacrebleu(scorer: str) -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise PackageMissing(
            f"{scorer} needs the package sacrebleu: {how_to_install('evals')}"
        ) from None
    return metrics
