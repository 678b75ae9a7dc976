"""Which rows a gate misses the scores of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from jobs.cli.console import one_line
from jobs.cli.deployment import Deployment
from jobs.errors import OutputError, StorageError

if TYPE_CHECKING:
    from jobs.records.evaluations import EvaluationRecord, ScoreRecord

_SHOWN = 3


def lacking_rows(
    deployment: Deployment,
    evaluation: EvaluationRecord,
    scores: Sequence[ScoreRecord],
    finding: Mapping[str, Any],
) -> list[str]:
    """The first rows without a score that a finding of the gate is about, and how to see all.

    Empty if it is about something else, or the file of scores cannot be read.
    """
    if not finding["rule"].startswith("missing<=") or evaluation.scores_path is None:
        return []
    about = [s for s in scores if finding["sentence"].startswith(f"{s.scorer}: ")]
    score = next((s for s in about if not s.slice_column), None)
    if score is None:
        return []
    try:
        found = list(islice(_rows(deployment, evaluation.scores_path, score.scorer), _SHOWN))
    except (OutputError, StorageError):  # the verdict counts without its file, too
        return []
    more = score.missing - len(found)
    return [
        *(f"        {row}" for row in found),
        f"        {f'and {more:,} more: ' if more else ''}"
        f"`pagemill eval scores {evaluation.id}` shows all; --allow-missing lets some be missing",
    ]


def _rows(deployment: Deployment, path: str, scorer: str) -> Iterator[str]:
    from jobs.evaluation.scores_file import ScoresFile

    score, note = f"score.{scorer}", f"note.{scorer}"
    columns = ["row_index", "custom_id", "error", score, note]
    for batch in ScoresFile(deployment.storage, path).batches(columns):
        for row in batch.to_pylist():
            if row[score] is None:
                named = "" if row["custom_id"] is None else f" ({row['custom_id']})"
                why = row[note] or row["error"] or "it has no answer"
                yield one_line(f"row {row['row_index']}{named}: {why}")
