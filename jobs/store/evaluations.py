"""Evaluations, from the moment that one is due."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from jobs.evaluation_tables import evaluations
from jobs.records.evaluations import EvaluationState, Trigger
from jobs.sqltypes import database_now
from jobs.store.rows import insert_unless_there


def insert_evaluation(
    connection: Connection,
    evaluation_id: str,
    *,
    name: str,
    spec: Mapping[str, Any],
    trigger: Trigger,
    schedule_id: str | None = None,
    due_at: datetime | None = None,
    expected_hash: str | None = None,
    skipped: tuple[str, str] | None = None,
) -> bool:
    """Insert a pending evaluation, for anybody to drive from now on.

    Args:
        skipped: code and message of why it is never begun.

    Returns:
        False if there is one of this id, or of this time of the schedule.
    """
    code, message = skipped or (None, None)
    statement = insert_unless_there(connection, evaluations).values(
        id=evaluation_id,
        name=name,
        schedule_id=schedule_id,
        due_at=due_at,
        trigger=trigger,
        spec=dict(spec),
        expected_hash=expected_hash,
        state=EvaluationState.SKIPPED if skipped else EvaluationState.PENDING,
        judge_jobs={},
        findings=[],
        error_code=code,
        error_message=message,
        lease_epoch=0,
        attempts=0,
        look_at=database_now(),
        created_at=database_now(),
        finished_at=database_now() if skipped else None,
    )
    inserted: int = connection.execute(statement.on_conflict_do_nothing()).rowcount
    return inserted == 1
