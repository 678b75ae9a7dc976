"""The score of each row of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.api.table_rows import TableRows
from jobs.evaluation.scores_file import ScoreRows, ScoresFile

if TYPE_CHECKING:
    from jobs.cli.target import Target
    from jobs.records.evaluations import EvaluationRecord
    from jobs.results import OutputRows
    from jobs.storage import Storage


class Scores(TableRows):
    """What was asked, what was answered, what is right, and what that is worth: a row for each row.

    `for row in scores` gives dicts, as `pagemill eval scores` prints them, and holds a few
    thousand rows at a time; `arrow`, `pandas` and `polars` hold all of them.

    Examples:
        >>> scores = evaluation.scores()
        >>> frame = scores.pandas(["prompt", "answer", "target", "score.exact"])
        >>> wrong = [row for row in scores if row["score.exact"] == 0]

    Attributes:
        evaluation_id: whose they are.
        schema: the columns, as Arrow has them; docs/evaluations.md tells of each.
        path: the Parquet file that holds them.
    """

    _called = "scores()"

    def __init__(self, storage: Storage, evaluation: EvaluationRecord) -> None:
        path = evaluation.scores_path
        assert path is not None
        self._rows = ScoreRows(ScoresFile(storage, path))
        self._inputs: Sequence[str] = evaluation.spec["inputs"]
        self.evaluation_id = evaluation.id
        self.schema: pa.Schema = self._rows.schema
        self.path = str(storage.root / path)

    def __repr__(self) -> str:
        return f"Scores({self.evaluation_id!r})"

    @contextmanager
    def _opened(self) -> Iterator[OutputRows]:
        yield self._rows

    def _check(self, target: Target, rows: OutputRows) -> None:
        target.refuse_openai()
        target.refuse_inputs(self._inputs)
