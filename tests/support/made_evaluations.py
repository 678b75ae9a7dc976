"""Evaluations that were never run: rows of SQL and files of scores, as a run would leave them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import insert

from jobs.database import Database
from jobs.evaluation.scores_file import scores_path
from jobs.evaluation_tables import evaluation_comparisons, evaluation_scores, evaluations
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationRecord,
    EvaluationState,
    ScoreRecord,
    Verdict,
)
from jobs.storage import Storage
from jobs.store import Store
from jobs.store.evaluations import SCORES_FOLDER

START = datetime(2030, 1, 1, 3, 0, tzinfo=UTC)


def a_spec(*scorers: str, **values: Any) -> dict[str, Any]:
    """A specification with scorers of those names."""
    return {
        "version": 1,
        "inputs": ["/evals/questions.jsonl"],
        "model": "the-model",
        "target": "target",
        "scorers": [
            {"name": name, "scorer": name if name in ("exact", "f1") else "exact", "options": {}}
            for name in scorers or ("exact",)
        ],
        "submit": {"system": "Answer in one word.", "temperature": 0.0},
        "slices": ["topic"],
        "gate": {"against": "baseline", "rules": ["exact:drop<=0.02"], "alpha": 0.05, "missing": 0},
        "dataset": "frozen",
        "notify": ["https://hooks.example.com/secret-token"],
        "seed": 0,
        **values,
    }


class MadeEvaluations:
    """Puts evaluations into a database and a storage."""

    def __init__(self, database: Database, storage: Storage) -> None:
        self._database = database
        self._storage = storage
        self._made = 0

    def add(
        self,
        name: str = "nightly",
        *,
        scores: Sequence[ScoreRecord] = (),
        comparisons: Sequence[ComparisonRecord] = (),
        rows: Sequence[Mapping[str, Any]] | None = None,
        spec: Mapping[str, Any] | None = None,
        state: EvaluationState = EvaluationState.COMPLETED,
        **values: Any,
    ) -> str:
        """Insert an evaluation, a day after the one before; returns its id."""
        evaluation_id = f"eval_{self._made:04d}{uuid.uuid4().hex[:16]}"
        ended = START + timedelta(days=self._made)
        self._made += 1
        verdict = Verdict.PASSED if state is EvaluationState.COMPLETED else None
        row = {
            "id": evaluation_id,
            "name": name,
            "trigger": "cron",
            "due_at": ended - timedelta(minutes=9),
            "spec": dict(spec or a_spec()),
            "state": state,
            "verdict": verdict,
            "judge_jobs": {},
            "dataset_hash": "d" * 64,
            "dataset_rows": len(rows) if rows is not None else 100,
            "findings": [],
            "lease_epoch": 1,
            "attempts": 0,
            "look_at": ended,
            "created_at": ended - timedelta(minutes=9),
            "started_at": ended - timedelta(minutes=8),
            "finished_at": ended if state.terminal else None,
            "scores_path": None if rows is None else scores_path(evaluation_id, 1),
            **values,
        }
        with self._database.begin() as connection:
            connection.execute(insert(evaluations).values(row))
            for table, records in (
                (evaluation_scores, scores),
                (evaluation_comparisons, comparisons),
            ):
                for record in records:
                    of_it = {field: getattr(record, field) for field in record.__slots__}
                    connection.execute(insert(table).values(evaluation_id=evaluation_id, **of_it))
        if rows is not None:
            write_scores(self._storage, row["scores_path"], rows)
        return evaluation_id

    def rewrite(self, scores_path: str, rows: Sequence[Mapping[str, Any]]) -> None:
        write_scores(self._storage, scores_path, rows)

    def record(self, evaluation_id: str) -> EvaluationRecord:
        return Store(self._database).evaluation(evaluation_id)


def write_scores(storage: Storage, relative: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file of scores, of rows as `a_row` makes them."""
    storage.new_job(SCORES_FOLDER)
    path = storage.root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(name, _kind(name)) for name in (rows[0] if rows else ())])
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path, row_group_size=64)


def _kind(column: str) -> pa.DataType:
    if column == "row_index":
        return pa.int64()
    return pa.float64() if column.startswith("score.") else pa.string()


def a_row(
    number: int,
    answer: str | None,
    *,
    key: int | None = None,
    prompt: str | None = None,
    target: str | None = "yes",
    custom_id: str | None = None,
    error: str | None = None,
    notes: Mapping[str, str] | None = None,
    slices: Mapping[str, str] | None = None,
    **scores: float | None,
) -> dict[str, Any]:
    """A row of a file of scores; rows of one key are the same row."""
    row: dict[str, Any] = {
        "row_index": number,
        "custom_id": custom_id,
        "row_key": hashlib.sha256(str(number if key is None else key).encode()).hexdigest(),
        "prompt": prompt if prompt is not None else f"question {number}",
        "target": target,
        "answer": answer,
        "error": error,
        "slices": json.dumps(dict(slices or {})),
    }
    for name, score in scores.items():
        row[f"score.{name}"] = score
        row[f"note.{name}"] = (notes or {}).get(name)
    return row
