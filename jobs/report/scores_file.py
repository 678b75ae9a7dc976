"""The file of scores of a run: where it lies, which scorers it knows, and what it holds.

Of all rows only keys and scores are held in memory; texts are read of the rows that are shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import OutputError, StorageError
from jobs.files import below
from jobs.records.evaluations import EvaluationRecord
from jobs.storage import Storage

MAX_KEPT = 20_000  # characters of a text that are kept: what is compared on the page is shorter
_BATCH = 4096
_KEY = "S64"  # SHA-256 in hexadecimal
_TEXTS = ("custom_id", "prompt", "target", "answer", "error")
_SCORE = "score."


@dataclass(frozen=True, slots=True)
class Scores:
    """A file of scores that is there."""

    path: Path
    scorers: tuple[str, ...]


def scores_of(storage: Storage, evaluation: EvaluationRecord) -> Scores | str:
    """The file of a run, or why there is none: a report is of use without its rows, too."""
    if evaluation.scores_path is None:
        return f"{evaluation.id} has no file of scores"
    try:
        path = below(storage.root, evaluation.scores_path)
        names = pq.read_schema(path).names
    except FileNotFoundError:
        return f"the scores of {evaluation.id} by row are gone ({evaluation.scores_path})"
    except (OSError, pa.ArrowException, StorageError) as error:
        return f"the scores of {evaluation.id} by row cannot be read: {error}"
    scorers = (name.removeprefix(_SCORE) for name in names if name.startswith(_SCORE))
    return Scores(path, tuple(scorers))


class ScoreColumns:
    """Keys and scores of all rows of a file.

    Attributes:
        values: scorers x rows; NaN where there is no score.
    """

    def __init__(self, path: Path, scorers: Sequence[str]) -> None:
        self._path = path
        self._scorers = scorers
        self._columns = [f"score.{name}" for name in scorers]
        keys, rows, values = [], [], []
        for batch in batches(path, ["row_index", "row_key", *self._columns]):
            keys.append(np.array(batch.column("row_key").to_pylist(), dtype=_KEY))
            rows.append(batch.column("row_index").to_numpy(zero_copy_only=False))
            values.append(np.array([
                batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
                for name in self._columns
            ]))  # fmt: skip
        self.keys: np.ndarray[Any, Any] = _joined(keys, _KEY)
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


def _joined(parts: list[Any], kind: str) -> np.ndarray[Any, Any]:
    return np.concatenate(parts) if parts else np.empty(0, kind)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A file; what goes wrong while it is read becomes an error of ours."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"the scores in {path} cannot be read: {error}") from error


def batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows, some thousands of them at a time.

    Raises:
        OutputError: the file is damaged.
    """
    with _opened(path) as file:
        yield from file.iter_batches(_BATCH, columns=columns)
