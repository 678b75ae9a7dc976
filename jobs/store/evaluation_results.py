"""What came out of evaluations: scores by slice, and differences to earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from jobs.evaluation_tables import evaluation_comparisons, evaluation_scores
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationResults,
    Interval,
    Method,
    Role,
    ScoreRecord,
)

ROWS_AT_ONCE = 500  # of one statement


def scores(connection: Connection, evaluation_id: str) -> list[ScoreRecord]:
    """All rows together first, of each scorer, then its slices."""
    columns = evaluation_scores.c
    query = (
        select(evaluation_scores)
        .where(columns.evaluation_id == evaluation_id)
        .order_by(columns.scorer, columns.slice_column, columns.slice_value)
    )
    return [_score_record(row) for row in connection.execute(query)]


def overall_scores(connection: Connection, ids: Sequence[str]) -> dict[str, list[ScoreRecord]]:
    """Those of all rows together, of several evaluations."""
    columns = evaluation_scores.c
    found: dict[str, list[ScoreRecord]] = {}
    for start in range(0, len(ids), ROWS_AT_ONCE):
        some = columns.evaluation_id.in_(ids[start : start + ROWS_AT_ONCE])
        query = select(evaluation_scores).where(some, columns.slice_column == "")
        for row in connection.execute(query.order_by(columns.scorer)):
            found.setdefault(row.evaluation_id, []).append(_score_record(row))
    return found


def comparisons(connection: Connection, evaluation_id: str) -> list[ComparisonRecord]:
    columns = evaluation_comparisons.c
    query = (
        select(evaluation_comparisons)
        .where(columns.evaluation_id == evaluation_id)
        .order_by(columns.role, columns.scorer)
    )
    return [
        ComparisonRecord(
            role=Role(row.role),
            scorer=row.scorer,
            other_id=row.other_id,
            pairs=row.pairs,
            better=row.better,
            worse=row.worse,
            unpaired=row.unpaired,
            difference=row.difference,
            low=row.low,
            high=row.high,
            p_value=row.p_value,
            method=None if row.method is None else Method(row.method),
        )
        for row in connection.execute(query)
    ]


def insert_results(
    connection: Connection,
    evaluation_id: str,
    results: EvaluationResults,
) -> None:
    """Insert what came out of an evaluation that has no results yet."""
    for table, records in (
        (evaluation_scores, results.scores),
        (evaluation_comparisons, results.comparisons),
    ):
        rows = [{"evaluation_id": evaluation_id, **_values(record)} for record in records]
        for start in range(0, len(rows), ROWS_AT_ONCE):
            connection.execute(insert(table), rows[start : start + ROWS_AT_ONCE])


def _values(record: ScoreRecord | ComparisonRecord) -> Mapping[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _score_record(row: Row[Any]) -> ScoreRecord:
    return ScoreRecord(
        scorer=row.scorer,
        slice_column=row.slice_column,
        slice_value=row.slice_value,
        rows=row.rows,
        missing=row.missing,
        value=row.value,
        low=row.low,
        high=row.high,
        interval=None if row.interval is None else Interval(row.interval),
    )
