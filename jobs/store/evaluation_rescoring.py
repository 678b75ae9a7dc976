"""Evaluations that are scored once more after their end.

Their row stays as it is meanwhile, but for the lease; what came out is replaced in one transaction.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, update

from jobs.evaluation_tables import evaluation_comparisons, evaluation_scores, evaluations
from jobs.records.evaluations import (
    EvaluationLease,
    EvaluationResults,
    EvaluationState,
)
from jobs.sqltypes import database_now
from jobs.store.evaluation_results import insert_results
from jobs.store.evaluation_steps import change_leased
from jobs.store.evaluations import evaluation
from jobs.store.sweep import lease_is_free

# Ended, and there may be answers.
SCORABLE = (EvaluationState.COMPLETED, EvaluationState.FAILED)


def claim_ended(
    connection: Connection, evaluation_id: str, owner: str, seconds: float
) -> EvaluationLease | None:
    """Lease an evaluation that has ended; None if others have it, or it is not in such a state."""
    of_it = evaluations.c.id == evaluation_id
    claimed = connection.execute(
        update(evaluations)
        .where(of_it, evaluations.c.state.in_(SCORABLE), lease_is_free(evaluations))
        .values(
            lease_epoch=evaluations.c.lease_epoch + 1,
            lease_owner=owner,
            lease_expires_at=database_now(seconds),
        )
    )
    if claimed.rowcount != 1:
        return None
    return EvaluationLease(evaluation(connection, evaluation_id), owner)


def replace_results(
    connection: Connection, lease: EvaluationLease, results: EvaluationResults
) -> bool:
    """Its new scores are there, by the judges that the lease names. Also True if this very call
    did so before."""
    replaced = change_leased(
        connection,
        lease,
        state=EvaluationState.COMPLETED,
        judge_jobs=dict(lease.evaluation.judge_jobs),
        error_code=None,
        error_message=None,
        rescored_at=database_now(),
        lease_expires_at=None,
        lease_owner=None,
        **results.values(),
    )
    if not replaced:
        return evaluation(connection, lease.id).scores_path == results.scores_path
    for table in (evaluation_scores, evaluation_comparisons):
        connection.execute(delete(table).where(table.c.evaluation_id == lease.id))
    insert_results(connection, lease.id, results)
    return True
