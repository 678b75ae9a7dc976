"""`exact` and `normalized`: the answer is the target, letter by letter or in what it says."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from dataclasses import dataclass
from typing import Any

from jobs.evaluation.scorers.base import TextScorer

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True, kw_only=True)
class Exact(TextScorer):
    """The answer is the target, letter by letter.

    Attributes:
        strip: white space around either does not count.
        ignore_case: upper and lower case are the same.
    """

    name = "exact"
    summary = "the answer is the target, letter by letter"
    strip: bool = True
    ignore_case: bool = False

    def prepared(self, text: str) -> str:
        text = text.strip() if self.strip else text
        return text.casefold() if self.ignore_case else text

    def compare(self, answer: Any, target: Any) -> float:
        return float(answer == target)


@dataclass(frozen=True, kw_only=True)
class Normalized(TextScorer):
    """The answer is the target but for case, punctuation, articles and white space."""

    name = "normalized"
    summary = "the answer is the target but for case, punctuation, English articles and white space"

    def prepared(self, text: str) -> str:
        return normalized(text)

    def compare(self, answer: Any, target: Any) -> float:
        return float(answer == target)


def normalized(text: str) -> str:
    """A text as SQuAD compares it (Rajpurkar et al., 2016), for every script.

    Compatible forms become one (NFKC: full-width letters, ligatures), case is folded, punctuation
    goes, a, an and the go where they are words, and white space becomes single spaces. Where
    nothing would be left (an answer that is all punctuation, or an article) only white space and
    case are folded, so that "+" is not "-".
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = " ".join(_ARTICLES.sub(" ", folded.translate(_punctuation())).split())
    return bare or " ".join(folded.split())


@functools.cache
def _punctuation() -> dict[int, None]:
    """All punctuation of Unicode, and the symbols of ASCII, which SQuAD takes for punctuation."""
    marks = (c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "P")
    return dict.fromkeys(map(ord, (*marks, *"$+<=>^`|~")))
