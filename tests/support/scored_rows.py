"""Rows to score."""

from __future__ import annotations

from typing import Any

from jobs.evaluation.rows import Score, ScoredRow
from jobs.evaluation.scorers.base import RowScorer
from jobs.evaluation.spec import ScorerSpec


def row(answer: str | None, target: Any = None, **more: Any) -> ScoredRow:
    return ScoredRow(row_index=more.pop("row_index", 0), answer=answer, target=target, **more)


def scorer(name: str, **options: Any) -> RowScorer:
    made = ScorerSpec(name, name, options).make()
    assert isinstance(made, RowScorer)
    return made


def scored(name: str, answer: str | None, target: Any = None, **options: Any) -> Score:
    return scorer(name, **options).score(row(answer, target))


def value(name: str, answer: str, target: Any = None, **options: Any) -> float | None:
    return scored(name, answer, target, **options).value
