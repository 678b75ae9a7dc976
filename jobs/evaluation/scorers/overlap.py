"""`f1`, `rouge_1`, `rouge_2`, `rouge_l`: how many words the answer shares with the target."""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobs.errors import PackageMissing
from jobs.evaluation.scorers.base import TextScorer
from jobs.evaluation.scorers.texts import normalized
from jobs.extras import how_to_install

# Chinese and Japanese have no spaces between words: each character is one.
_WORDS = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)


@dataclass(frozen=True, kw_only=True)
class F1(TextScorer):
    """Harmonic mean of precision and recall over words, as in SQuAD (Rajpurkar et al., 2016)."""

    name = "f1"
    summary = "F1 over the words of answer and target, as normalized compares them"

    def prepared(self, text: str) -> list[str]:
        return _WORDS.findall(normalized(text))

    def compare(self, answer: Any, target: Any) -> float:
        shared = (Counter(answer) & Counter(target)).total()
        return _f1(shared, len(answer), len(target))


@dataclass(frozen=True, kw_only=True)
class Rouge(TextScorer):
    """F-measure of ROUGE (Lin, 2004), over the words of the package `rouge-score`.

    Attributes:
        stem: words of English count by their stem (Porter).
        words: `latin` are those of `rouge-score`, runs of a-z and 0-9; `unicode` are those of
            every script.
    """

    stem: bool = False
    words: Literal["latin", "unicode"] = "latin"

    def __post_init__(self) -> None:
        if self.stem and self.words == "unicode":
            raise ValueError('stem is true; it goes with words "latin" only')

    def prepare(self) -> None:
        if self.words == "latin":
            _ = self._tokenizer

    @functools.cached_property
    def _tokenizer(self) -> Any:
        try:
            from rouge_score.tokenizers import DefaultTokenizer
        except ImportError:
            raise PackageMissing(
                f"{self.name} needs the package rouge-score: {how_to_install('evals')}"
            ) from None
        return DefaultTokenizer(self.stem)

    def prepared(self, text: str) -> list[str]:
        if self.words == "unicode":
            return _WORDS.findall(normalized(text))
        tokens: list[str] = self._tokenizer.tokenize(text)
        return tokens

    @abstractmethod
    def compare(self, answer: Any, target: Any) -> float: ...


class _Grams(Rouge):
    length: int

    def compare(self, answer: Any, target: Any) -> float:
        ours, theirs = (self._grams(tokens) for tokens in (answer, target))
        return _f1((ours & theirs).total(), ours.total(), theirs.total())

    def _grams(self, tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(zip(*(tokens[i:] for i in range(self.length)), strict=False))


class Rouge1(_Grams):
    """ROUGE-1: single words."""

    name = "rouge_1"
    summary = "ROUGE-1: words that answer and target share"
    length = 1


class Rouge2(_Grams):
    """ROUGE-2: pairs of words."""

    name = "rouge_2"
    summary = "ROUGE-2: pairs of words that answer and target share"
    length = 2


class RougeL(Rouge):
    """ROUGE-L: the longest common subsequence of words."""

    name = "rouge_l"
    summary = "ROUGE-L: the longest sequence of words that answer and target share"

    def compare(self, answer: Any, target: Any) -> float:
        return _f1(common_subsequence(answer, target), len(answer), len(target))


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence.

    By bits of one long integer (Hyyrö, 2004): of two texts of 10,000 words in a moment, where a
    table has a hundred million cells.
    """
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    whole = (1 << len(a)) - 1
    rows = whole
    for word in b:
        matched = rows & places.get(word, 0)
        rows = (rows + matched | rows - matched) & whole
    return len(a) - rows.bit_count()


def _f1(shared: int, ours: int, theirs: int) -> float:
    """Of two empty texts 1, of an empty one and another 0."""
    if ours == 0 or theirs == 0:
        return float(ours == theirs)
    return 2 * shared / (ours + theirs)
