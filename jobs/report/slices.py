"""Slices of the rows, and how far each moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.records.evaluations import ScoreRecord


@dataclass(frozen=True, slots=True)
class SliceChange:
    """A slice, now and in the run that it is compared with.

    Attributes:
        difference: between the two values; None where one of them is missing.
    """

    now: ScoreRecord
    before: ScoreRecord | None
    difference: float | None


def sliced(
    now: Sequence[ScoreRecord], before: Sequence[ScoreRecord]
) -> dict[str, tuple[SliceChange, ...]]:
    """By column; the largest change first, and where there is none the lowest value."""
    earlier = {(s.scorer, s.slice_column, s.slice_value): s for s in before}
    found: dict[str, list[SliceChange]] = {}
    for score in now:
        if not score.slice_column:
            continue
        other = earlier.get((score.scorer, score.slice_column, score.slice_value))
        difference = None
        if other is not None and other.value is not None and score.value is not None:
            difference = score.value - other.value
        found.setdefault(score.slice_column, []).append(SliceChange(score, other, difference))
    return {column: tuple(sorted(found[column], key=_order)) for column in sorted(found)}


def _order(change: SliceChange) -> tuple[float, float, str, str]:
    value = change.now.value
    moved = -abs(change.difference) if change.difference is not None else 0.0
    low = float("inf") if value is None else value
    return moved, low, change.now.slice_value, change.now.scorer
