"""`regex`: what a regular expression finds in the answer is the target."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from jobs.evaluation.rows import Score, ScoredRow, accepted, as_text, brief, missing
from jobs.evaluation.scorers.base import RowScorer
from jobs.evaluation.scorers.bounded import BoundedPattern, TooSlow
from jobs.evaluation.scorers.texts import normalized


@dataclass(frozen=True, kw_only=True)
class Regex(RowScorer):
    """What the expression finds is compared with the target as `normalized` does.

    Attributes:
        pattern: of the Python library `regex`, which is that of `re` and more.
        group: number or name of the group that counts; by default the first, or all of the match
            where there are no groups.
        take: which of several matches counts.
        ignore_case: upper and lower case are the same to the expression.
        found: a match alone is worth 1, whatever it is; no target is needed.
    """

    name = "regex"
    summary = "what a regular expression finds in the answer is the target"
    pattern: str
    group: int | str | None = None
    take: Literal["first", "last"] = "first"
    ignore_case: bool = False
    found: bool = False

    def __post_init__(self) -> None:
        known = (*range(self._compiled.groups + 1), *self._compiled.names)
        if self.group is not None and self.group not in known:
            raise ValueError(
                f"group is {self.group!r}; the pattern has {', '.join(map(str, known))}"
            )

    @property
    def needs_target(self) -> bool:
        return not self.found

    @functools.cached_property
    def _compiled(self) -> BoundedPattern:
        return BoundedPattern(self.pattern, self.ignore_case)

    def score_answer(self, row: ScoredRow) -> Score:
        if row.answer is None:
            return missing("no answer")
        try:
            match = self._compiled.search(row.answer, self.take == "last")
        except TooSlow as error:
            return missing(str(error))
        group = min(1, self._compiled.groups) if self.group is None else self.group
        text = None if match is None else match.group(group)
        if text is None:
            return Score(0.0, "no match")
        if self.found:
            return Score(1.0, brief(text))
        targets = {normalized(as_text(target)) for target in accepted(row.target)}
        return Score(float(normalized(text) in targets), brief(text))
