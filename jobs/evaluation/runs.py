"""Driving evaluations: one step of each that is due, in any process.

pending     its rows are looked at, and the job that answers them is submitted
answering   the job has ended: its answers are scored, or judges are asked before
judging     the jobs of the judges have ended
scoring     scores are found, written, compared, and judged by the gate

A step is done under a lease, and each may be done again: jobs are submitted under an idempotency
key, a file of scores counts only once SQL names it, and SQL takes the outcome of the newest lease
only. So a process may be killed anywhere, and any number of them may drive.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.errors import (
    DatabaseError,
    DatabaseUnavailable,
    InputChanged,
    InputError,
    JobNotFound,
    JobsError,
    KeyReused,
    OutputError,
    PackageMissing,
    StateConflict,
    StorageUnavailable,
    UsageError,
)
from jobs.evaluation.spec import EvaluationSpec
from jobs.records import JobRecord
from jobs.records.evaluations import EvaluationLease, EvaluationState
from jobs.renewal import renewed
from jobs.settings import Settings
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment

log = logging.getLogger("pagemill.evaluation")

MOST_ATTEMPTS = 5  # of one step
FIRST_WAIT_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 300.0
OPEN_AGAIN_SECONDS = 10.0  # until a job is looked at again that somebody retried

# Of errors that come again and again, in the evaluation that they end.
_CODES: dict[type[Exception], str] = {
    UsageError: "cannot_run",
    PackageMissing: "package_missing",
    InputChanged: "dataset_changed",
    InputError: "dataset_unreadable",
    OutputError: "output_incomplete",
}
_JOB_CODES = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.EXPIRED: "expired",
}


class CannotBeDone(Exception):
    """An evaluation has failed, and to try again would not help.

    Attributes:
        code: stable name, see docs/evaluations.md.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def job_key(evaluation_id: str) -> str:
    """The idempotency key of the job that answers."""
    return f"evaluation:{evaluation_id}"


def drive(
    store: Store,
    storage: Storage,
    settings: Settings,
    owner: str,
    evaluation_id: str | None = None,
    lost: Callable[[], None] = lambda: None,
) -> int:
    """Take one step of every evaluation that is due; returns how many were done here.

    Args:
        owner: who holds the leases meanwhile.
        evaluation_id: look at this one only, and at once.
        lost: called, in another thread, if a step goes on that is of no use any more: its
            evaluation was cancelled, or others have it.

    What goes wrong is tried again, after a while that grows: `MOST_ATTEMPTS` times, or for as long
    as it takes where the storage or the database is away. Nothing of it ends the caller.
    """
    from jobs.cli.deployment import Deployment

    deployment = Deployment(settings, store, storage, log.warning)
    done = 0
    for found in store.evaluations_due(evaluation_id):
        lease = store.claim_evaluation(found, owner, at_once=evaluation_id is not None)
        if lease is not None:
            done += _attempt(deployment, lease, lost)
    return done


def _attempt(deployment: Deployment, lease: EvaluationLease, lost: Callable[[], None]) -> int:
    """Take a step under its lease; returns whether it was done here, as 0 or 1."""
    store, evaluation = deployment.store, lease.evaluation
    extra = {"event": "evaluation", "evaluation_id": lease.id}
    if evaluation.attempts >= MOST_ATTEMPTS:
        message = evaluation.error_message or (
            f"whoever was {evaluation.state} it died {evaluation.attempts} times; see whether "
            "there is a lack of memory"
        )
        return int(store.fail_evaluation(lease, "internal_error", message))

    def not_renewed(error: JobsError) -> None:
        log.warning("evaluation %s: lease not renewed: %s", lease.id, error, extra=extra)

    try:
        with renewed(lambda: store.renew_evaluation(lease), store.lease_seconds, not_renewed, lost):
            return int(_STEPS[evaluation.state](_Step.of(deployment, lease)))
    except CannotBeDone as failed:
        log.error("evaluation %s: %s", lease.id, failed, extra=extra)
        return int(store.fail_evaluation(lease, failed.code, str(failed)))
    except DatabaseUnavailable as error:
        log.warning("evaluation %s: will be tried again: %s", lease.id, error, extra=extra)
        with contextlib.suppress(DatabaseError):
            store.retry_evaluation_later(lease, str(error), FIRST_WAIT_SECONDS, counts=False)
    except Exception as error:
        known = isinstance(error, JobsError)
        said = str(error) if known else f"{type(error).__name__}: {error}"
        log.warning(
            "evaluation %s: will be tried again: %s", lease.id, said, extra=extra,
            exc_info=None if known else error,
        )  # fmt: skip
        with contextlib.suppress(DatabaseError):
            return _failed(store, lease, error, said)
    except BaseException:  # told to leave: others go on at once
        with contextlib.suppress(DatabaseError):
            store.leave_evaluation(lease, 0)
        raise
    return 0


def _failed(store: Store, lease: EvaluationLease, error: Exception, said: str) -> int:
    """Try again later, or end the evaluation if that was the last attempt."""
    may_pass = isinstance(error, StorageUnavailable)
    attempts = lease.evaluation.attempts + 1
    if attempts >= MOST_ATTEMPTS and not may_pass:
        code = next((c for kind, c in _CODES.items() if isinstance(error, kind)), "internal_error")
        return int(store.fail_evaluation(lease, code, said))
    wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (attempts - 1))
    store.retry_evaluation_later(lease, said, wait, counts=not may_pass)
    return 0


@dataclass(frozen=True, slots=True)
class _Step:
    """What every step needs."""

    deployment: Deployment
    lease: EvaluationLease
    spec: EvaluationSpec

    @classmethod
    def of(cls, deployment: Deployment, lease: EvaluationLease) -> _Step:
        return cls(deployment, lease, EvaluationSpec.from_json(lease.evaluation.spec))

    @property
    def store(self) -> Store:
        return self.deployment.store

    def move(self, target: EvaluationState, **values: object) -> bool:
        return self.store.move_evaluation(self.lease, target, **values)


def _submit(step: _Step) -> bool:
    """Submit the job that answers the rows, unless an earlier attempt did."""
    step.spec.make_scorers()  # what they lack is told before anything is answered
    job = step.store.job_of_key(job_key(step.lease.id)) or _queued(step)
    if job is None:
        return False
    step.deployment.wake(job.model)
    if step.move(EvaluationState.ANSWERING, job_id=job.id):
        return True
    if step.store.evaluation(step.lease.id).state is EvaluationState.CANCELLED:
        stop_job(step.store, job.id)  # which was not there yet when it was cancelled
    return False


def _queued(step: _Step) -> JobRecord | None:
    """Look at the rows and queue them; None if the lease was lost meanwhile."""
    from jobs.cli.submitting import queue_job
    from jobs.evaluation.dataset import describe_inputs, submission_of
    from jobs.evaluation.inputs import find

    evaluation, deployment = step.lease.evaluation, step.deployment
    inputs = find(step.spec.inputs, deployment.settings.max_unpacked_bytes)
    stamp = inputs.stamp()
    found = describe_inputs(deployment, step.spec, inputs)
    if evaluation.expected_hash not in (None, found.hash):
        raise CannotBeDone(
            "dataset_changed",
            f"the rows of {inputs.source.name} are not those that the schedule was made for: their "
            f"hash is {found.hash[:12]}, and was {str(evaluation.expected_hash)[:12]}. Put the "
            "files back, or make the schedule anew (`pagemill schedule add`); with --on-change "
            "follow it takes the rows as they are",
        )
    if not step.store.note_dataset(step.lease, found.hash, found.rows):
        return None
    submission = replace(
        submission_of(deployment, step.spec, inputs),
        name=evaluation.name,
        idempotency_key=job_key(evaluation.id),
    )
    try:
        job, _ = queue_job(deployment, submission)
    except KeyReused:
        raise CannotBeDone("dataset_changed", _WRITTEN.format(inputs.source.name)) from None
    if inputs.stamp() != stamp:
        stop_job(step.store, job.id)
        raise CannotBeDone("dataset_changed", _WRITTEN.format(inputs.source.name))
    return job


_WRITTEN = "{} was written while it was read; run the evaluation again once nobody writes to it"


def _answered(step: _Step) -> bool:
    """The job has ended: have its answers judged, or scored."""
    from jobs.evaluation.judging import judges_of, submit_judge

    job = ended_job(step.store, step.lease.evaluation.job_id, "job", "that answers")
    if job is None:
        step.store.leave_evaluation(step.lease, OPEN_AGAIN_SECONDS)
        return False
    asked = {}
    for name, judge in judges_of(step.spec.make_scorers()).items():
        found = submit_judge(step.deployment, step.lease.evaluation, step.spec, name, judge, job)
        if found is not None:
            asked[name] = found.id
    target = EvaluationState.JUDGING if asked else EvaluationState.SCORING
    if step.move(target, judge_jobs=asked):
        return True
    if step.store.evaluation(step.lease.id).state is EvaluationState.CANCELLED:
        for job_id in asked.values():
            stop_job(step.store, job_id)
    return False


def _judged(step: _Step) -> bool:
    """Whether all judges have ended, with a reply to score by."""
    if not _judges_ended(step):
        step.store.leave_evaluation(step.lease, OPEN_AGAIN_SECONDS)
        return False
    return step.move(EvaluationState.SCORING)


def _judges_ended(step: _Step) -> bool:
    judge_jobs = step.lease.evaluation.judge_jobs.items()
    return all(ended_job(step.store, id, "judge", f"of {name}") for name, id in judge_jobs)


def _score(step: _Step) -> bool:
    from jobs.evaluation.scoring import score

    job = ended_job(step.store, step.lease.evaluation.job_id, "job", "that answers")
    if job is None or not _judges_ended(step):  # retried by somebody meanwhile
        step.store.leave_evaluation(step.lease, OPEN_AGAIN_SECONDS)
        return False
    scorers = step.spec.make_scorers()
    done = score(
        step.store,
        step.deployment.storage,
        step.lease,
        step.spec,
        scorers,
        job,
        step.store.finish_evaluation,
    )
    if done:
        log.info(
            "evaluation %s of %s: completed", step.lease.id, step.lease.evaluation.name,
            extra={"event": "evaluation_completed", "evaluation_id": step.lease.id},
        )  # fmt: skip
    return done


_STEPS: dict[EvaluationState, Callable[[_Step], bool]] = {
    EvaluationState.PENDING: _submit,
    EvaluationState.ANSWERING: _answered,
    EvaluationState.JUDGING: _judged,
    EvaluationState.SCORING: _score,
}


def ended_job(store: Store, job_id: str | None, kind: str, which: str) -> JobRecord | None:
    """A job that is completed; None if it goes on.

    Raises:
        CannotBeDone: it ended in another way, or was deleted.
    """
    assert job_id is not None
    try:
        job = store.job(job_id)
    except JobNotFound:
        raise CannotBeDone(
            f"{kind}_deleted", f"job {job_id} {which} was deleted before it was scored"
        ) from None
    if not job.state.terminal:
        return None
    if job.state is JobState.COMPLETED:
        return job
    why = f": {job.error_message}" if job.error_message else ""
    raise CannotBeDone(
        f"{kind}_{_JOB_CODES[job.state]}", f"job {job_id} {which} is {job.state}{why}"
    )


def stop_job(store: Store, job_id: str) -> None:
    """Cancel a job that is of no use any more, if it has not ended."""
    with contextlib.suppress(StateConflict, JobNotFound):
        store.request_cancel(job_id)
