"""Evaluations as rows: inserted, looked at, blessed, removed. `evaluation_steps` moves them on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)

from jobs.errors import StateConflict
from jobs.evaluation_tables import evaluation_comparisons, evaluation_scores, evaluations
from jobs.records.evaluations import (
    EvaluationRecord,
    EvaluationState,
    Trigger,
    Verdict,
)
from jobs.sqltypes import database_now
from jobs.store.by_id import evaluation_row
from jobs.store.rows import inserted_unless_there
from jobs.tables import deletions

SCORES_FOLDER = "evaluations"  # with a folder for each, under the storage
ENDED = [state for state in EvaluationState if state.terminal]


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
    values: dict[str, Any] = {
        "id": evaluation_id,
        "name": name,
        "schedule_id": schedule_id,
        "due_at": due_at,
        "trigger": trigger,
        "spec": dict(spec),
        "expected_hash": expected_hash,
        "state": EvaluationState.SKIPPED if skipped else EvaluationState.PENDING,
        "judge_jobs": {},
        "findings": [],
        "error_code": code,
        "error_message": message,
        "lease_epoch": 0,
        "attempts": 0,
        "look_at": database_now(),
        "created_at": database_now(),
        "finished_at": database_now() if skipped else None,
    }
    return inserted_unless_there(connection, evaluations, values)


def evaluation(connection: Connection, given: str) -> EvaluationRecord:
    """The evaluation of an id, or of the only one that starts so.

    Raises:
        EvaluationNotFound: there is none, or there are several.
    """
    return evaluation_record(evaluation_row(connection, given))


def list_evaluations(
    connection: Connection,
    name: str | None,
    states: Collection[EvaluationState],
    schedule_id: str | None,
    limit: int | None,
) -> list[EvaluationRecord]:
    query = select(evaluations).order_by(*(column.desc() for column in _order()))
    if name is not None:
        query = query.where(evaluations.c.name == name)
    if states:
        query = query.where(evaluations.c.state.in_(states))
    if schedule_id is not None:
        query = query.where(evaluations.c.schedule_id == schedule_id)
    return [evaluation_record(row) for row in connection.execute(query.limit(limit))]


def names(connection: Connection) -> list[str]:
    """The names of all series."""
    query = select(evaluations.c.name).distinct().order_by(evaluations.c.name)
    return list(connection.scalars(query))


def baseline_of(
    connection: Connection, name: str, before: EvaluationRecord | None
) -> EvaluationRecord | None:
    query = (
        select(evaluations)
        .where(evaluations.c.name == name, evaluations.c.blessed_at.is_not(None), *_before(before))
        .order_by(evaluations.c.blessed_at.desc(), evaluations.c.id.desc())
    )
    return _first(connection, query)


def previous_of(
    connection: Connection, name: str, before: EvaluationRecord | None
) -> EvaluationRecord | None:
    query = (
        select(evaluations)
        .where(
            evaluations.c.name == name,
            evaluations.c.state == EvaluationState.COMPLETED,
            *_before(before),
        )
        .order_by(*(column.desc() for column in _order()))
    )
    return _first(connection, query)


def bless(connection: Connection, evaluation_id: str, remove: bool) -> EvaluationRecord:
    """Make a completed evaluation the baseline of its series, or take that back.

    Raises:
        StateConflict: it is not completed, so nothing can be compared with it.
    """
    found = evaluation(connection, evaluation_id)
    if not remove and found.state is not EvaluationState.COMPLETED:
        raise StateConflict(
            f"evaluation {found.id} is {found.state}; only a completed one can be a baseline"
        )
    connection.execute(
        update(evaluations)
        .where(evaluations.c.id == found.id)
        .values(blessed_at=None if remove else database_now())
    )
    return evaluation(connection, found.id)


def delete_evaluation(
    connection: Connection, evaluation_id: str, ended_for: float | None, again: bool
) -> bool:
    """Forget an evaluation that has ended; `deletions` tells what files have to go.

    Args:
        ended_for: only if it ended at least so many seconds ago, and is no baseline; False if not.
        again: there was an earlier attempt, whose answer was lost on its way.

    Raises:
        StateConflict: it has not ended.
    """
    query = select(evaluations.c.state).where(evaluations.c.id == evaluation_id)
    state = connection.scalar(query.with_for_update())
    if state is None:
        if again:
            return True
        evaluation(connection, evaluation_id)  # says how to find one
    if state not in ENDED:
        raise StateConflict(
            f"evaluation {evaluation_id} is {state}; wait until it has ended, or end it with "
            f"`pagemill eval cancel {evaluation_id}`"
        )
    old = () if ended_for is None else _ended_long_ago(ended_for)
    if not connection.scalar(select(exists().where(evaluations.c.id == evaluation_id, *old))):
        return False
    # As of jobs: whoever finds a deletion removes the folder.
    connection.execute(
        insert(deletions).values(
            job_id=evaluation_id,
            folder=f"{SCORES_FOLDER}/{evaluation_id}",
            deleted_at=database_now(),
        )
    )
    for table in (evaluation_scores, evaluation_comparisons):
        connection.execute(delete(table).where(table.c.evaluation_id == evaluation_id))
    connection.execute(delete(evaluations).where(evaluations.c.id == evaluation_id))
    return True


def evaluations_that_ended(connection: Connection, seconds: float) -> list[EvaluationRecord]:
    query = select(evaluations).where(*_ended_long_ago(seconds)).order_by(evaluations.c.finished_at)
    return [evaluation_record(row) for row in connection.execute(query)]


def _ended_long_ago(seconds: float) -> tuple[ColumnElement[bool], ...]:
    """Whether it is kept no longer; baselines stay as long as they are blessed."""
    return evaluations.c.finished_at <= database_now(-seconds), evaluations.c.blessed_at.is_(None)


def evaluation_record(row: Row[Any]) -> EvaluationRecord:
    return EvaluationRecord(
        id=row.id,
        name=row.name,
        schedule_id=row.schedule_id,
        due_at=row.due_at,
        trigger=Trigger(row.trigger),
        spec=row.spec,
        expected_hash=row.expected_hash,
        state=EvaluationState(row.state),
        job_id=row.job_id,
        judge_jobs=row.judge_jobs,
        dataset_hash=row.dataset_hash,
        dataset_rows=row.dataset_rows,
        scores_path=row.scores_path,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        findings=row.findings,
        error_code=row.error_code,
        error_message=row.error_message,
        epoch=row.lease_epoch,
        attempts=row.attempts,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        blessed_at=row.blessed_at,
        rescored_at=row.rescored_at,
    )


def _order() -> tuple[ColumnElement[Any], ColumnElement[Any], ColumnElement[Any]]:
    """By when they were made; those that one look at the clock made, by when they were due."""
    columns = evaluations.c
    return columns.created_at, func.coalesce(columns.due_at, columns.created_at), columns.id


def _before(record: EvaluationRecord | None) -> tuple[ColumnElement[bool], ...]:
    if record is None:
        return ()
    created, due = record.created_at, record.due_at or record.created_at
    return (tuple_(*_order()) < (created, due, record.id),)


def _first(connection: Connection, query: Any) -> EvaluationRecord | None:
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else evaluation_record(row)
