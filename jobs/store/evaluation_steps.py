"""The steps of an evaluation, each a compare-and-set under the lease of whoever takes it.

Any number of processes look for what is due. One of them gets the lease, whose epoch fences those
that had it before: what they still do to the row does not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    and_,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)

from jobs.errors import StateConflict
from jobs.evaluation_shape import evaluation_json
from jobs.evaluation_tables import EVALUATION_IS_OPEN, evaluations, schedules
from jobs.records.evaluations import (
    EvaluationLease,
    EvaluationRecord,
    EvaluationResults,
    EvaluationState,
    Overlap,
    Verdict,
)
from jobs.sqltypes import database_now
from jobs.states import TERMINAL
from jobs.store import notifications
from jobs.store.evaluation_results import comparisons as comparisons_of
from jobs.store.evaluation_results import insert_results
from jobs.store.evaluation_results import scores as scores_of
from jobs.store.evaluations import evaluation
from jobs.store.sweep import lease_is_free
from jobs.tables import jobs

LOOKED_AT = 100  # evaluations of one look


def due(connection: Connection, only: str | None) -> list[str]:
    """Ids of evaluations whose next step may be taken now, the longest waiting first.

    Args:
        only: look at this one alone; unless a try failed, do not wait for its time to come.
    """
    query = select(evaluations.c.id).where(*_is_due(only)).order_by(evaluations.c.look_at)
    return list(connection.scalars(query.limit(LOOKED_AT)))


def waited_for(connection: Connection, evaluation_id: str) -> str | None:
    """The first evaluation of its schedule that has to end before it begins, if there is one."""
    others = evaluations.alias("others")
    query = (
        select(others.c.id)
        .select_from(others.join(evaluations, and_(*_is_open_before(others))))
        .where(evaluations.c.id == evaluation_id, _waits())
        .order_by(others.c.created_at, others.c.id)
    )
    return connection.scalar(query.limit(1))


def claim(
    connection: Connection, evaluation_id: str, owner: str, seconds: float, at_once: bool
) -> EvaluationLease | None:
    """Lease an evaluation whose next step is due; None if it is not, or others have it.

    A lease that ran out, and was never let go, counts as a failed attempt: whoever had it died.

    Args:
        at_once: unless a try failed, do not wait for its time to come.
    """
    of_it = evaluations.c.id == evaluation_id
    died = case((evaluations.c.lease_expires_at.is_not(None), 1), else_=0)
    claimed = connection.execute(
        update(evaluations)
        .where(of_it, *_is_due(evaluation_id if at_once else None))
        .values(
            lease_epoch=evaluations.c.lease_epoch + 1,
            lease_owner=owner,
            lease_expires_at=database_now(seconds),
            started_at=func.coalesce(evaluations.c.started_at, database_now()),
            attempts=evaluations.c.attempts + died,
        )
    )
    if claimed.rowcount != 1:
        return None
    return EvaluationLease(evaluation(connection, evaluation_id), owner)


def renew(connection: Connection, lease: EvaluationLease, seconds: float) -> bool:
    return change_leased(connection, lease, lease_expires_at=database_now(seconds))


def note_dataset(connection: Connection, lease: EvaluationLease, digest: str, rows: int) -> bool:
    """Write down which rows are about to be submitted."""
    return change_leased(connection, lease, dataset_hash=digest, dataset_rows=rows)


def let_go(connection: Connection, lease: EvaluationLease, seconds: float) -> bool:
    """Nothing is to be done; nobody need look again before so many seconds have passed."""
    return change_leased(
        connection, lease, lease_expires_at=None, lease_owner=None, look_at=database_now(seconds)
    )


def retry_later(
    connection: Connection, lease: EvaluationLease, message: str, seconds: float, counts: bool
) -> bool:
    """A step was tried in vain: it is tried again.

    Args:
        counts: whether that counts as an attempt, of which there are only so many.
    """
    return change_leased(
        connection,
        lease,
        attempts=lease.evaluation.attempts + (1 if counts else 0),
        error_message=message,
        lease_expires_at=None,
        lease_owner=None,
        look_at=database_now(seconds),
    )


def move(
    connection: Connection,
    lease: EvaluationLease,
    target: EvaluationState,
    values: Mapping[str, Any],
) -> bool:
    """A step is done; the next one is due at once. Also True if this very move was made before."""
    if change_leased(
        connection,
        lease,
        state=target,
        attempts=0,
        error_message=None,
        lease_expires_at=None,
        lease_owner=None,
        look_at=database_now(),
        **values,
    ):
        return True
    now = evaluation(connection, lease.id)
    return (now.state, now.epoch) == (target, lease.epoch)


def finish(connection: Connection, lease: EvaluationLease, results: EvaluationResults) -> bool:
    """Its scores are there. Also True if this very call did so before."""
    if _end(connection, lease, EvaluationState.COMPLETED, results.values()):
        insert_results(connection, lease.id, results)
        _tell_end(connection, lease.id)
        return True
    now = evaluation(connection, lease.id)
    return (now.state, now.epoch) == (EvaluationState.COMPLETED, lease.epoch)


def fail(connection: Connection, lease: EvaluationLease, code: str, message: str) -> bool:
    """It cannot be done. Also True if this very call did so before."""
    values = {"verdict": Verdict.FAILED, "error_code": code, "error_message": message}
    if _end(connection, lease, EvaluationState.FAILED, values):
        _tell_end(connection, lease.id)
        return True
    now = evaluation(connection, lease.id)
    return (now.state, now.epoch) == (EvaluationState.FAILED, lease.epoch)


def cancel(connection: Connection, evaluation_id: str) -> EvaluationRecord:
    """End it where it stands; its jobs are not touched. Asking again changes nothing.

    Raises:
        StateConflict: it has ended in another way.
    """
    cancelled = connection.execute(
        update(evaluations)
        .where(evaluations.c.id == evaluation_id, EVALUATION_IS_OPEN)
        .values(state=EvaluationState.CANCELLED, finished_at=database_now(), lease_expires_at=None)
    )
    if cancelled.rowcount == 1:
        _tell_end(connection, evaluation_id)
    found = evaluation(connection, evaluation_id)
    if found.state is not EvaluationState.CANCELLED:
        raise StateConflict(
            f"evaluation {evaluation_id} is {found.state} and cannot be cancelled any more"
        )
    return found


def _end(
    connection: Connection,
    lease: EvaluationLease,
    target: EvaluationState,
    values: Mapping[str, Any],
) -> bool:
    ended = {"error_message": None, "lease_expires_at": None, "finished_at": database_now()}
    return change_leased(connection, lease, state=target, **{**ended, **values})


def _tell_end(connection: Connection, evaluation_id: str) -> None:
    """Have its end, which the transaction brings about, told to the URLs that it names."""
    found = evaluation(connection, evaluation_id)
    urls = found.spec.get("notify") or ()
    if not urls:
        return
    results = scores_of(connection, found.id), comparisons_of(connection, found.id)
    body = evaluation_json(found, *results)
    for url in urls:
        notifications.record(connection, found.id, f"evaluation.{found.state}", url, body)


def change_leased(connection: Connection, lease: EvaluationLease, **values: Any) -> bool:
    """Change the row of an evaluation, unless others have its lease by now, or it was moved."""
    changed = connection.execute(
        update(evaluations)
        .where(
            evaluations.c.id == lease.id,
            evaluations.c.lease_epoch == lease.epoch,
            evaluations.c.lease_expires_at.is_not(None),
            evaluations.c.state == lease.evaluation.state,
        )
        .values(**values)
    )
    return changed.rowcount == 1


def _is_due(only: str | None) -> tuple[ColumnElement[bool], ...]:
    when = evaluations.c.look_at <= database_now()
    if only is not None:
        # Whoever waits for it waits only where a try failed.
        not_failed = evaluations.c.error_message.is_(None)
        when = and_(evaluations.c.id == only, or_(when, not_failed))
    free = lease_is_free(evaluations)
    return (EVALUATION_IS_OPEN, when, free, ~_waits_for_job(), ~_waits_for_judge(), ~_waits())


def _waits_for_job() -> ColumnElement[bool]:
    """Whether the job that answers its rows has not ended."""
    of_it = (jobs.c.id == evaluations.c.job_id, jobs.c.state.not_in(TERMINAL))
    answering = evaluations.c.state == EvaluationState.ANSWERING
    return and_(answering, exists().where(*of_it).correlate(evaluations))


def _waits_for_judge() -> ColumnElement[bool]:
    """Whether a job that judges its answers has not ended; such jobs are known by their keys."""
    start = literal("evaluation:") + evaluations.c.id + literal(":")
    of_it = func.substr(jobs.c.idempotency_key, 1, func.length(start)) == start
    judging = evaluations.c.state == EvaluationState.JUDGING
    open_ones = exists().where(of_it, jobs.c.state.not_in(TERMINAL))
    return and_(judging, open_ones.correlate(evaluations))


def _waits() -> ColumnElement[bool]:
    """Whether an earlier one of its schedule has to end before it begins."""
    earlier = evaluations.alias("earlier")
    ours = evaluations.c
    its_schedule = (schedules.c.id == ours.schedule_id, schedules.c.overlap == Overlap.WAIT)
    return and_(
        ours.state == EvaluationState.PENDING,
        ours.schedule_id.is_not(None),
        exists().where(*its_schedule).correlate(evaluations),
        exists().where(*_is_open_before(earlier)).correlate(evaluations),
    )


def _is_open_before(others: FromClause) -> tuple[ColumnElement[bool], ...]:
    """Whether another one of a schedule of the same name is earlier, and has not ended."""
    ours, theirs = evaluations.c, others.c
    ours_due = func.coalesce(ours.due_at, ours.created_at)
    theirs_due = func.coalesce(theirs.due_at, theirs.created_at)
    # As evaluations are ordered everywhere, so that no two wait for each other.
    is_earlier = or_(
        theirs.created_at < ours.created_at,
        and_(theirs.created_at == ours.created_at, theirs_due < ours_due),
        and_(theirs.created_at == ours.created_at, theirs_due == ours_due, theirs.id < ours.id),
    )
    of_it = theirs.name == ours.name, theirs.schedule_id.is_not(None)
    return *of_it, theirs.finished_at.is_(None), is_earlier
