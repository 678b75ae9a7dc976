"""Rows of two runs side by side, out of their files of scores, in bounded memory.

Of all rows only keys and scores are held; texts are read of the rows that are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.errors import OutputError

MAX_KEPT = 20_000  # characters of a text that are kept: what is compared on the page is shorter
_KEY = 32  # characters of a row's key that are compared: 128 bits
_BATCH = 4096
_MOST_REASONS = 1_000  # that are told apart while they are counted
SHOWN_REASONS = 12
_OTHERS = "other reasons"

_TEXTS = ("custom_id", "prompt", "target", "answer", "error")


@dataclass(frozen=True, slots=True)
class Side:
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
    before: Side
    now: Side


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


def changes(
    before: Path, now: Path, scorers: Sequence[str], falling: Sequence[str], limit: int
) -> Changes:
    """The rows that scorers say another thing of than before.

    Args:
        falling: scorers of which a lower score is the better one.
        limit: most rows that are shown, of those that got worse and of those that got better.

    Raises:
        OutputError: a file is damaged.
    """
    theirs, ours = _Scores(before, scorers), _Scores(now, scorers)
    i, j = _paired(theirs.keys, ours.keys)
    signs = np.array([[-1.0 if name in falling else 1.0] for name in scorers])
    moved = signs * (ours.values[:, j] - theirs.values[:, i])
    # What only one of the two has a score for is no change: the table says how many there are.
    moved = np.nan_to_num(moved, nan=0.0, posinf=np.inf, neginf=-np.inf)
    lowest, highest = moved.min(axis=0, initial=0.0), moved.max(axis=0, initial=0.0)
    worse = np.flatnonzero(lowest < 0)
    better = np.flatnonzero((lowest == 0) & (highest > 0))
    order = np.lexsort((ours.rows[j[worse]], lowest[worse]))
    first_worse = worse[order][:limit]
    order = np.lexsort((ours.rows[j[better]], -highest[better]))
    first_better = better[order][:limit]
    chosen = np.concatenate([first_worse, first_better])
    then, today = theirs.texts(i[chosen]), ours.texts(j[chosen])

    def example(pair: int) -> Example:
        old, new = then[int(i[pair])], today[int(j[pair])]
        names = tuple(n for k, n in enumerate(scorers) if moved[k, pair] != 0)
        return Example(
            int(new["row_index"]), new["custom_id"], new["prompt"] or "", new["target"], names,
            _side(old, scorers), _side(new, scorers),
        )  # fmt: skip

    return Changes(
        pairs=len(i),
        only_before=len(theirs.keys) - len(i),
        only_now=len(ours.keys) - len(j),
        worse=len(worse),
        better=len(better),
        worse_rows=tuple(example(pair) for pair in first_worse),
        better_rows=tuple(example(pair) for pair in first_better),
    )


def reasons(path: Path, scorers: Sequence[str]) -> tuple[Reason, ...]:
    """Why rows have no scores, by scorer, the most frequent first.

    Raises:
        OutputError: the file is damaged.
    """
    counted: dict[str, Counter[str]] = {name: Counter() for name in scorers}
    names = [f"{kind}.{name}" for name in scorers for kind in ("score", "note")]
    for batch in _batches(path, ["error", *names]):
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


class _Scores:
    """Keys and scores of all rows of a file.

    Attributes:
        values: scorers x rows; NaN where there is no score.
    """

    def __init__(self, path: Path, scorers: Sequence[str]) -> None:
        self._path = path
        self._scorers = scorers
        self._columns = [f"score.{name}" for name in scorers]
        keys, rows, values = [], [], []
        for batch in _batches(path, ["row_index", "row_key", *self._columns]):
            short = pc.utf8_slice_codeunits(batch.column("row_key"), 0, _KEY)
            keys.append(np.array(short.to_pylist(), dtype=f"S{_KEY}"))
            rows.append(batch.column("row_index").to_numpy(zero_copy_only=False))
            values.append(np.array([
                batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
                for name in self._columns
            ]))  # fmt: skip
        self.keys: np.ndarray[Any, Any] = _joined(keys, f"S{_KEY}")
        self.rows: np.ndarray[Any, Any] = _joined(rows, "int64")
        self.values: np.ndarray[Any, Any] = (
            np.concatenate(values, axis=1) if values else np.empty((len(scorers), 0))
        )

    def texts(self, places: np.ndarray[Any, Any]) -> dict[int, dict[str, Any]]:
        """All that is known of the rows in some places of the file."""
        wanted = np.unique(places)
        notes = [f"note.{name}" for name in self._scorers]
        columns = ["row_index", *_TEXTS, *self._columns, *notes]
        found: dict[int, dict[str, Any]] = {}
        start = 0
        with _opened(self._path) as file:
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                here = wanted[(wanted >= start) & (wanted < end)]
                if len(here):
                    _read_group(file, group, columns, here - start, start, found)
                start = end
        return found


def _read_group(
    file: pq.ParquetFile,
    group: int,
    columns: list[str],
    places: np.ndarray[Any, Any],
    start: int,
    found: dict[int, dict[str, Any]],
) -> None:
    at = 0
    for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns):
        here = places[(places >= at) & (places < at + batch.num_rows)]
        for place, row in zip(here, batch.take(pa.array(here - at)).to_pylist(), strict=True):
            found[start + int(place)] = {
                key: value[:MAX_KEPT] if isinstance(value, str) else value
                for key, value in row.items()
            }
        at += batch.num_rows


def _paired(
    theirs: np.ndarray[Any, Any], ours: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Places of the same rows in two files.

    Rows with the same key are paired in their order: the first with the first.
    """
    a, b = np.argsort(theirs, kind="stable"), np.argsort(ours, kind="stable")
    theirs, ours = theirs[a], ours[b]
    nth = np.arange(len(ours)) - np.searchsorted(ours, ours, side="left")
    at = np.searchsorted(theirs, ours, side="left") + nth
    there = at < len(theirs)
    there[there] = theirs[at[there]] == ours[there]
    return a[at[there]], b[there]


def _side(row: Mapping[str, Any], scorers: Sequence[str]) -> Side:
    return Side(
        row["answer"],
        row["error"],
        {name: row[f"score.{name}"] for name in scorers},
        {name: row[f"note.{name}"] for name in scorers},
    )


def _counts(values: Any) -> tuple[list[str], list[int]]:
    counts = pc.value_counts(values)
    return counts.field("values").to_pylist(), counts.field("counts").to_pylist()


def _joined(parts: list[Any], kind: str) -> np.ndarray[Any, Any]:
    return np.concatenate(parts) if parts else np.empty(0, kind)


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"the scores in {path} cannot be read: {error}") from error


def _batches(path: Path, columns: list[str]) -> Any:
    with _opened(path) as file:
        try:
            yield from file.iter_batches(_BATCH, columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"the scores in {path} cannot be read: {error}") from error
