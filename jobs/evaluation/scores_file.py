"""The file of an evaluation's scores, a row for each row of its data set.

    evaluations/<id>/scores-e<epoch>.parquet     under the storage; SQL names the one that counts

Its columns are a promise, see docs/evaluations.md. What each row adds to the sums of a score of
all texts together (`counts.<name>`) is there so that a later evaluation can be compared with it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.evaluation.aggregate import slice_text
from jobs.evaluation.answers import AnsweredRow
from jobs.evaluation.compare import Side
from jobs.evaluation.rows import Score
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.statistics import Floats
from jobs.job_folder import JobFolder
from jobs.parquet_files import open_parquet
from jobs.storage import Storage
from jobs.store.evaluations import SCORES_FOLDER

READ_ROWS = 4096
_KEY = "S32"
_ROW = (
    pa.field("row_index", pa.int64(), nullable=False),
    pa.field("custom_id", pa.string()),
    pa.field("row_key", pa.string(), nullable=False),
    pa.field("prompt", pa.string(), nullable=False),
    pa.field("target", pa.string()),
    pa.field("answer", pa.string()),
    pa.field("error", pa.string()),
    pa.field("slices", pa.string(), nullable=False),
)
_SCORES_FILE = re.compile(r"evaluations/eval_[a-z0-9]+/scores-e\d+\.parquet")


def scores_path(evaluation_id: str, epoch: int) -> str:
    """Where the scores lie that somebody found under the lease of that epoch."""
    return f"{SCORES_FOLDER}/{evaluation_id}/scores-e{epoch}.parquet"


def schema_of(scorers: Mapping[str, Scorer]) -> pa.Schema:
    fields = list(_ROW)
    for name, scorer in scorers.items():
        fields += [
            pa.field(f"score.{name}", pa.float64()),
            pa.field(f"note.{name}", pa.string()),
        ]
        if isinstance(scorer, CorpusScorer):
            fields.append(pa.field(f"counts.{name}", pa.list_(pa.float64())))
    return pa.schema(fields)


class ScoresWriter:
    """Writes scores in batches, a row group each."""

    def __init__(
        self, writer: pq.ParquetWriter, scorers: Mapping[str, Scorer], slices: Sequence[str]
    ) -> None:
        self._writer = writer
        self._scorers = scorers
        self._slices = slices

    def add(self, rows: Sequence[AnsweredRow], scores: Mapping[str, Sequence[Score]]) -> None:
        """Write a batch: the scores of each scorer, in the order of the rows."""
        columns: dict[str, list[Any]] = {
            "row_index": [r.row.row_index for r in rows],
            "custom_id": [r.row.custom_id for r in rows],
            "row_key": [r.key for r in rows],
            "prompt": [r.row.prompt for r in rows],
            "target": [_target(r.row.target) for r in rows],
            "answer": [r.row.answer for r in rows],
            "error": [r.row.error for r in rows],
            "slices": [
                orjson.dumps({c: slice_text(r.row.columns.get(c)) for c in self._slices}).decode()
                for r in rows
            ],
        }
        for name, scorer in self._scorers.items():
            columns[f"score.{name}"] = [score.value for score in scores[name]]
            columns[f"note.{name}"] = [score.note for score in scores[name]]
            if isinstance(scorer, CorpusScorer):
                columns[f"counts.{name}"] = [score.counts for score in scores[name]]
        table = pa.table(columns, schema=schema_of(self._scorers))
        self._writer.write_table(table, row_group_size=max(1, len(rows)))


@contextlib.contextmanager
def writing(
    folder: JobFolder, path: str, scorers: Mapping[str, Scorer], slices: Sequence[str]
) -> Iterator[ScoresWriter]:
    """Write a file of scores, which is there at the end of the block, whole, or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    with (
        folder.create(path) as file,
        pq.ParquetWriter(file, schema_of(scorers), compression="zstd") as writer,
    ):
        yield ScoresWriter(writer, scorers, slices)


class ScoresFile:
    """A file of scores that is there, read by columns or a few rows at a time.

    Raises:
        OutputError: it is missing or damaged.
        StorageError: it cannot be read.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        if _SCORES_FILE.fullmatch(path) is None:
            raise ValueError(f"{path!r} is no file of scores")
        self.path = path
        self._folder = storage.job(SCORES_FOLDER)
        self._inner = path.removeprefix(f"{SCORES_FOLDER}/")
        with open_parquet(self._folder, self._inner) as file:
            self.schema: pa.Schema = file.schema_arrow

    @property
    def scorers(self) -> list[str]:
        """The names of its scorers."""
        found = [name for name in self.schema.names if name.startswith("score.")]
        return [name.removeprefix("score.") for name in found]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        with open_parquet(self._folder, self._inner) as file:
            names = None if columns is None else list(columns)
            yield from file.iter_batches(READ_ROWS, columns=names, use_threads=False)

    def keys(self) -> npt.NDArray[np.bytes_]:
        """By which rows are paired with those of another evaluation.

        Of each the first 128 bits, which tell as many rows apart as there can be.
        """
        found = [np.array(batch.column(0).to_pylist(), _KEY) for batch in self.batches(["row_key"])]
        return np.concatenate(found) if found else np.empty(0, _KEY)

    def side(self, scorer: str) -> Side:
        """The scores of a scorer; NaN where a row has none."""
        counted = f"counts.{scorer}" in self.schema.names
        names = [f"score.{scorer}"] + ([f"counts.{scorer}"] if counted else [])
        values: list[Floats] = []
        counts: list[Any] = []
        for batch in self.batches(names):
            values.append(batch.column(0).to_numpy(zero_copy_only=False).astype(np.float64))
            counts += batch.column(1).to_pylist() if counted else []
        width = max((len(count) for count in counts if count is not None), default=0)
        none = [0.0] * width
        table = np.array([none if c is None else c for c in counts], np.float64)
        return Side(
            np.concatenate(values) if values else np.zeros(0),
            table.reshape(-1, width) if counted and width else None,
        )

    def rows(self, places: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Some rows, by their places in the file."""
        wanted, start = set(places), 0
        found: dict[int, dict[str, Any]] = {}
        for batch in self.batches(columns):
            chosen = sorted(place for place in wanted if start <= place < start + batch.num_rows)
            if chosen:
                some = batch.take(pa.array([place - start for place in chosen]))
                found |= dict(zip(chosen, some.to_pylist(), strict=True))
            start += batch.num_rows
        return found


class ScoreRows:
    """Scores as `jobs.export` takes rows; without what a computer alone needs."""

    version = 1

    def __init__(self, file: ScoresFile) -> None:
        self._file = file
        kept = [field for field in file.schema if not field.name.startswith("counts.")]
        self.schema: pa.Schema = pa.schema(kept)

    @property
    def job(self) -> Any:
        raise NotImplementedError  # asked for by the format of OpenAI alone

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        for batch in self._file.batches(columns or self.schema.names):
            yield pa.Table.from_batches([batch])


def _target(value: Any) -> str | None:
    """A target as the file has it: text, or JSON of what is none."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
