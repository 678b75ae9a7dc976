"""An evaluation that has ended is scored once more, as its job was retried, or a judge's.

What it was before stays as it is until all is there, and is replaced in one transaction: whoever is
killed in between leaves the old scores, and at most a file that nobody names.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.errors import DatabaseError, JobNotFound, JobsError, StateConflict
from jobs.evaluation.judging import judges_of, submit_judge
from jobs.evaluation.runs import CannotBeDone, ended_job
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scoring import score
from jobs.evaluation.spec import EvaluationSpec
from jobs.records import JobRecord
from jobs.records.evaluations import EvaluationRecord
from jobs.renewal import renewed
from jobs.store.evaluation_rescoring import SCORABLE

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment

log = logging.getLogger("pagemill.evaluation")

# Takes a job to its end; False if the time ran out before.
ToItsEnd = Callable[[JobRecord], bool]


def rescored(
    deployment: Deployment, evaluation_id: str, to_its_end: ToItsEnd
) -> EvaluationRecord | None:
    """Score the answers that an evaluation has now; None if the time for its jobs ran out.

    Judges are asked once more if the answers are others than those they were asked about.

    Raises:
        StateConflict: it has not ended, it has no answers, or another process is at it.
        UsageError, PackageMissing: a scorer lacks something here.
        OutputError, StorageError: rows cannot be read, or scores not be written.
    """
    store = deployment.store
    found = _scorable(deployment, evaluation_id)
    spec = EvaluationSpec.from_json(found.spec)
    scorers = spec.make_scorers()
    answered = _job(deployment, found.job_id, "that answers", to_its_end)
    if answered is None:
        return None
    asked = {}
    for name, judge in judges_of(scorers).items():
        job = submit_judge(deployment, found, spec, name, judge, answered)
        if job is not None:
            asked[name] = job.id
    for name, job_id in asked.items():
        if _job(deployment, job_id, f"of {name}", to_its_end) is None:
            return None
    _under_a_lease(deployment, replace(found, judge_jobs=asked), spec, scorers, answered)
    return store.evaluation(found.id)


def _scorable(deployment: Deployment, evaluation_id: str) -> EvaluationRecord:
    found = deployment.store.evaluation(evaluation_id)
    if not found.state.terminal:
        raise StateConflict(
            f"evaluation {found.id} is {found.state} and will be scored; `pagemill eval wait "
            f"{found.id}` waits for it"
        )
    if found.state not in SCORABLE or found.job_id is None:
        why = f": {found.error_message}" if found.error_message else ""
        raise StateConflict(f"evaluation {found.id} is {found.state} and has no answers{why}")
    return found


def _job(
    deployment: Deployment, job_id: str | None, which: str, to_its_end: ToItsEnd
) -> JobRecord | None:
    """A job once it is completed; None if the time ran out before."""
    try:
        while (found := ended_job(deployment.store, job_id, "job", which)) is None:
            assert job_id is not None
            with contextlib.suppress(JobNotFound):  # which the next look says
                if not to_its_end(deployment.store.job(job_id)):
                    return None
    except CannotBeDone as error:
        raise StateConflict(f"{error}; its rows cannot be scored once more") from None
    return found


def _under_a_lease(
    deployment: Deployment,
    wanted: EvaluationRecord,
    spec: EvaluationSpec,
    scorers: dict[str, Scorer],
    answered: JobRecord,
) -> None:
    store = deployment.store
    claimed = store.claim_ended_evaluation(wanted.id, deployment.owner)
    if claimed is None:
        raise StateConflict(
            f"evaluation {wanted.id} is being scored by another process; if that died, it can be "
            f"scored once more within {store.lease_seconds:g} s"
        )
    # Others may have changed the row since; what it is judged by is what was looked at here.
    lease = replace(claimed, evaluation=replace(claimed.evaluation, judge_jobs=wanted.judge_jobs))

    def not_renewed(error: JobsError) -> None:
        log.warning("evaluation %s: lease not renewed: %s", lease.id, error)

    finish = store.replace_evaluation_results
    try:
        with renewed(lambda: store.renew_evaluation(lease), store.lease_seconds, not_renewed):
            done = score(store, deployment.storage, lease, spec, scorers, answered, finish)
    except BaseException:
        with contextlib.suppress(DatabaseError):
            store.leave_evaluation(lease, 0)
        raise
    if not done:
        raise StateConflict(
            f"evaluation {lease.id} was scored by another process meanwhile; see `pagemill eval "
            f"show {lease.id}`"
        )
