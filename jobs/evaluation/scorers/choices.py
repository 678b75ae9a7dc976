"""`choice` and `choice_likelihood`: the answer is the right one of several choices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from jobs.evaluation.rows import Score, ScoredRow, accepted, as_text, brief, missing
from jobs.evaluation.scorers.base import RowScorer
from jobs.evaluation.scorers.bounded import MAX_CHARACTERS
from jobs.evaluation.scorers.markers import boxed
from jobs.evaluation.scorers.texts import normalized
from jobs.kinds import JobKind

_MARKUP = re.compile(r"\\(?:text|textbf|mathbf|mathrm|boxed)\s*\{|[*_`$\"{}]")
_MARKER = re.compile(
    r"\banswer\b(?:\s+(?:is|would\s+be|should\s+be))?|\b(?:option|choice)\b", re.IGNORECASE
)
_REST = re.compile(r"\s*[:=]?\s*(?:(?:option|choice)\s+)?", re.IGNORECASE)
# A small letter may be a word, such as the article: it counts before a mark or the end only.
_LETTER = re.compile(r"[(\[]?(?:([A-Z])(?![\w'\u2019])|([a-z])(?=\s*(?:[^\w\s'\u2019]|$)))[)\].:]*")
_FIRST = re.compile(r"\s*(?:[(\[]([A-Za-z])[)\]]|([A-Za-z])(?:[).:\]]|\s*$)|([A-Z])[ \t]*\n)")
_ANOTHER = re.compile(r"\s*(?:and|or|,|/|&)\s*[(\[]?[A-HJ-Z](?![\w'\u2019])")
_BRACKETS = re.compile(r"[(\[]([A-Z])[)\]]")
_SINGLE = re.compile(r"(?<![\w'\u2019])(?:([B-HJ-Z])(?![\w'\u2019])|([AI])(?=\W*$))")
_SEVERAL = -1
_MARKS = 200  # characters around the text of a choice that do not count, at most
_TARGET = re.compile(r"\s*[(\[]?([A-Za-z])[)\].:]{0,2}\s*")


@dataclass(frozen=True, kw_only=True)
class Choice(RowScorer):
    """The letter that the answer names is that of the right choice.

    Attributes:
        first: the number of the first choice, where targets are numbers.
    """

    name = "choice"
    summary = "the letter of a choice, found in the answer, is that of the right one"
    first: int = 0

    def score_answer(self, row: ScoredRow) -> Score:
        if row.answer is None:
            return missing("no answer")
        right = right_choices(row, self.first)
        if isinstance(right, Score):
            return right
        found = chosen(row.answer, row.choices or ())
        if found is None:
            return Score(0.0, "no choice named")
        return Score(float(found in right), label(found, row.choices))


@dataclass(frozen=True, kw_only=True)
class ChoiceLikelihood(RowScorer):
    """The choice that the model finds the likeliest is the right one; see docs/scoring.md.

    Attributes:
        normalized: longer choices lose less: `best_normalized` counts, and not `best`.
        first: the number of the first choice, where targets are numbers.
    """

    name = "choice_likelihood"
    summary = "the likeliest choice, of a job of kind score, is the right one"
    job_kind = JobKind.SCORE
    normalized: bool = False
    first: int = 0

    def score_answer(self, row: ScoredRow) -> Score:
        best = row.best_normalized if self.normalized else row.best
        if best is None:
            return missing("no scores")
        right = right_choices(row, self.first)
        if isinstance(right, Score):
            return right
        return Score(float(best in right), label(best, row.choices))


def right_choices(row: ScoredRow, first: int) -> set[int] | Score:
    """The choices that the target names, from 0; a missing score if one is none."""
    right = set()
    for target in accepted(row.target):
        index = _index(target, row.choices or (), first)
        if index is None:
            return missing(f"the target {as_text(target)!r} is no choice of the row")
        right.add(index)
    return right


def _index(target: Any, choices: Sequence[str], first: int) -> int | None:
    """A choice by its text, its letter, or its number."""
    count = len(choices) or len(ascii_uppercase)
    if isinstance(target, str):
        if target in choices:
            return list(choices).index(target)
        if letter := _TARGET.fullmatch(target):
            index = ascii_uppercase.find(letter[1].upper())
            if index < count:
                return index
        same = [i for i, text in enumerate(choices) if normalized(text) == normalized(target)]
        if same:
            return same[0]
        if not (target.strip().isascii() and target.strip().isdigit() and len(target) < 9):
            return None
        target = int(target)
    if isinstance(target, float) and target.is_integer():
        target = int(target)
    if type(target) is not int or not 0 <= target - first < count:
        return None
    return target - first


def chosen(answer: str, choices: Sequence[str]) -> int | None:
    """The choice that an answer names. The first of these rules that finds one counts:

    1. what is in the last `\\boxed{…}`;
    2. what comes after the last "answer is", "Answer:", "option" or "choice": a letter, or the
       text of a choice;
    3. the letter that it begins with, or is: "B", "(b)", "B. Paris";
    4. the only choice whose text is in it;
    5. the last letter in brackets, or else the last capital that stands alone.

    Letters of no choice, and those that are named together ("A or B"), are none.
    """
    text = answer[-MAX_CHARACTERS:]
    count = len(choices) or len(ascii_uppercase)
    inside = boxed(text)
    plain = _MARKUP.sub("", text)
    by_text = {normalized(choice): i for i, choice in reversed(list(enumerate(choices)))}
    if inside is not None:
        bare = _MARKUP.sub("", inside).strip()
        found = _named(bare, 0, by_text, count)
        if found is not None:
            return _one(found)
    for marker in reversed(list(_MARKER.finditer(plain))):
        rest = _REST.match(plain, marker.end())
        found = _named(plain, rest.end() if rest else marker.end(), by_text, count)
        if found is not None:
            return _one(found)
    if first := _FIRST.match(plain):
        found = _numbered(first, count)
        if found is not None:
            return found
    whole = f" {normalized(plain)} "
    named = {i for choice, i in by_text.items() if f" {choice} " in whole}
    if len(named) == 1:
        return named.pop()
    for pattern in (_BRACKETS, _SINGLE):
        for match in reversed(list(pattern.finditer(plain))):
            found = _numbered(match, count)
            if found is not None:
                return found
    return None


def _named(text: str, start: int, by_text: dict[str, int], count: int) -> int | None:
    """The choice whose text or letter stands at a place, or `_SEVERAL`."""
    # A longer line is no choice. To look at each would take hours where a model says one word,
    # such as "answer", again and again.
    most = start + 2 * max(map(len, by_text), default=0) + _MARKS
    end = text.find("\n", start, most + 1)
    if by_text and (end >= 0 or len(text) <= most):
        found = by_text.get(normalized(text[start : end if end >= 0 else len(text)]))
        if found is not None:
            return found
    letter = _LETTER.match(text, start)
    if letter is None:
        return None
    return _SEVERAL if _ANOTHER.match(text, letter.end()) else _numbered(letter, count)


def _one(found: int) -> int | None:
    return None if found == _SEVERAL else found


def _numbered(letter: re.Match[str], count: int) -> int | None:
    found = next(group for group in letter.groups() if group is not None)
    index = ascii_uppercase.index(found.upper())
    return index if index < count else None


def label(index: int, choices: Sequence[str] | None) -> str:
    """A choice as a note names it."""
    letter = ascii_uppercase[index] if index < len(ascii_uppercase) else str(index)
    text = choices[index] if choices and index < len(choices) else None
    return letter if text is None else brief(f"{letter}: {text.strip()}")
