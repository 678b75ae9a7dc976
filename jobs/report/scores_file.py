"""The file of scores of a run: where it lies, and which scorers it knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import StorageError
from jobs.files import below
from jobs.records.evaluations import EvaluationRecord
from jobs.storage import Storage

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
