"""Following an evaluation to its end, driving it meanwhile, and how commands end by its verdict."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jobs.cli.console import detached, note
from jobs.cli.deployment import Deployment, tell_of_wait
from jobs.cli.progress import Display
from jobs.cli.watching import AWAY_SECONDS, POLL_SECONDS, follow
from jobs.cli.why_it_waits import PATIENCE_SECONDS, telling_why_it_waits
from jobs.errors import DatabaseUnavailable, JobNotFound, StateConflict
from jobs.records.evaluations import EvaluationState, Verdict

if TYPE_CHECKING:
    from jobs.cli.options import EngineOptions
    from jobs.records import JobRecord
    from jobs.records.evaluations import EvaluationRecord

REGRESSED, INCOMPLETE, FAILED = 10, 11, 12
_CODES = {Verdict.REGRESSED: REGRESSED, Verdict.INCOMPLETE: INCOMPLETE, Verdict.FAILED: FAILED}

# Takes the next job of an evaluation to its end; False if the time ran out before.
Answer = Callable[["JobRecord", float | None], bool]


def exit_code(evaluation: EvaluationRecord) -> int:
    """How a command ends for an evaluation that has ended."""
    if evaluation.verdict is None:  # cancelled or skipped: there is nothing to judge
        return FAILED
    return _CODES.get(evaluation.verdict, 0)


def follow_evaluation(
    deployment: Deployment,
    evaluation_id: str,
    display: Display,
    timeout: float | None = None,
    answer: Answer | None = None,
) -> EvaluationRecord | None:
    """Drive an evaluation until it has ended, and tell its URLs; None if the time ran out before.

    What other processes do for it meanwhile is left to them.

    Args:
        display: is shown its jobs.
        answer: takes its jobs to their ends; by default they are waited for.
    """
    told = _Telling(deployment)
    deadline = None if timeout is None else time.monotonic() + timeout
    wait = answer or waiting(deployment, display)
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        with told.outages():
            evaluation = deployment.store.evaluation(evaluation_id)
            if evaluation.state.terminal:
                deployment.tell_urls_of_evaluation(evaluation)
                return evaluation
            told.of(evaluation)
            if (job := _open_job(deployment, evaluation)) is not None:
                if not wait(job, left):
                    return None
                continue
            if drive(deployment, evaluation_id):
                continue
        if left is not None and left <= 0:
            return None
        time.sleep(POLL_SECONDS)


def with_worker(
    deployment: Deployment,
    evaluation_id: str,
    engine: EngineOptions,
    displaying: Callable[[], AbstractContextManager[Display]],
    tell: Callable[[str], None] = note,
) -> Answer:
    """Answers the jobs of an evaluation, one after the other, with workers of our own.

    It raises `WorkerLeft` if a worker left, or was told to leave, and the evaluation goes on.

    Args:
        displaying: makes what shows a job.
        tell: takes a sentence about each job.
    """
    from jobs.cli.run import answer, log_of
    from jobs.cli.supervising import WorkerLeft

    def answered(job: JobRecord, _: float | None) -> bool:
        tell(f"job {job.id}, answered by a worker whose log is {log_of(deployment, job)}")
        try:
            answer(deployment, job, engine, displaying())
        except WorkerLeft as left:
            if left.reason is None:  # we were told to leave, and so was it
                raise
            # A job that nobody can answer was failed, and so the evaluation is.
            if not drive(deployment, evaluation_id):
                raise WorkerLeft(FAILED, left.reason) from None
        return True

    return answered


def drive(deployment: Deployment, evaluation_id: str) -> int:
    """Take the next step of an evaluation, if that is due; returns whether it was, as 0 or 1."""
    from jobs.evaluation.runs import drive as drive_due

    store, storage = deployment.store, deployment.storage
    return drive_due(store, storage, deployment.settings, deployment.owner, evaluation_id)


def cancel(deployment: Deployment, evaluation_id: str) -> EvaluationRecord:
    """End an evaluation, and the jobs that it still has.

    Raises:
        StateConflict: it has ended in another way.
    """
    from jobs.evaluation.judging import judge_key
    from jobs.evaluation.runs import job_key, stop_job

    store = deployment.store
    evaluation = store.cancel_evaluation(evaluation_id)
    # By their keys: one may be there that the evaluation does not name yet.
    scorers = [scorer.get("name", "") for scorer in evaluation.spec.get("scorers", [])]
    keys = [job_key(evaluation.id), *(judge_key(evaluation.id, name) for name in scorers)]
    for key in keys:
        job = store.job_of_key(key)
        if job is not None and not job.state.terminal:
            stop_job(store, job.id)
            deployment.settle(job.id)
    deployment.tell_urls_of_evaluation(evaluation)
    return evaluation


def ended(deployment: Deployment, evaluation_id: str) -> EvaluationRecord:
    """An evaluation that has ended.

    Raises:
        StateConflict: it has not.
    """
    found = deployment.store.evaluation(evaluation_id)
    if not found.state.terminal:
        raise StateConflict(
            f"evaluation {found.id} is {found.state}; `pagemill eval wait {found.id}` waits for it"
        )
    return found


def completed(deployment: Deployment, evaluation_id: str) -> EvaluationRecord:
    """An evaluation that has scores.

    Raises:
        StateConflict: it has none, or none yet.
    """
    found = ended(deployment, evaluation_id)
    if found.state is not EvaluationState.COMPLETED:
        why = f": {found.error_message}" if found.error_message else ""
        raise StateConflict(f"evaluation {found.id} is {found.state} and has no scores{why}")
    return found


def waiting(deployment: Deployment, display: Display) -> Answer:
    """Waits for jobs, and tells why they wait."""

    def wait(job: JobRecord, timeout: float | None) -> bool:
        shown = telling_why_it_waits(deployment, display)
        return follow(deployment, job.id, shown, timeout) is not None

    return wait


def within(wait: Answer, timeout: float | None) -> Callable[[JobRecord], bool]:
    """Waits for one job after the other, for so many seconds in all; False once they are over."""
    deadline = None if timeout is None else time.monotonic() + timeout

    def waited(job: JobRecord) -> bool:
        return wait(job, None if deadline is None else max(0.0, deadline - time.monotonic()))

    return waited


def _open_job(deployment: Deployment, evaluation: EvaluationRecord) -> JobRecord | None:
    """A job that it waits for."""
    match evaluation.state:
        case EvaluationState.ANSWERING:
            ids = [evaluation.job_id]
        case EvaluationState.JUDGING:
            ids = list(evaluation.judge_jobs.values())
        case _:
            ids = []
    for job_id in ids:
        assert job_id is not None
        with contextlib.suppress(JobNotFound):  # the next step says so
            job = deployment.store.job(job_id)
            if not job.state.terminal:
                return job
    return None


class _Telling:
    """Says, once each, why an evaluation does not go on."""

    def __init__(self, deployment: Deployment) -> None:
        self._store = deployment.store
        self._tell = deployment.tell
        self._said: str | None = None
        self._since = time.monotonic()
        self._state: EvaluationState | None = None
        self._away_since: float | None = None

    def of(self, evaluation: EvaluationRecord) -> None:
        now = time.monotonic()
        if evaluation.state is not self._state:
            self._state, self._since, self._said = evaluation.state, now, None
        said = evaluation.error_message and f"A step is tried again: {evaluation.error_message}"
        long = now - self._since >= PATIENCE_SECONDS
        if said is None and long and evaluation.state is EvaluationState.PENDING:
            said = self._why_not_begun(evaluation)
        if said and said != self._said:
            self._tell(said)
            self._said = said

    def _why_not_begun(self, evaluation: EvaluationRecord) -> str:
        earlier = self._store.evaluation_waited_for(evaluation.id)
        if earlier is None:  # so the step is ours to take, unless others have it
            return (
                "The evaluation has not begun: another process reads its rows; if that died, it "
                f"is gone on with within {self._store.lease_seconds:g} s"
            )
        return (
            f"The evaluation has not begun: {earlier}, an earlier one of its schedule, has not "
            f"ended (`pagemill eval show {earlier}`)"
        )

    @contextlib.contextmanager
    def outages(self) -> Iterator[None]:
        """Wait for a database that is away, for a while."""
        try:
            yield
        except DatabaseUnavailable as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                tell_of_wait(error, self._tell)
            elif now - self._away_since > AWAY_SECONDS:
                raise
        else:
            self._away_since = None


def goes_on(evaluation_id: str) -> str:
    """For one who does not wait any more."""
    return detached(
        f"evaluation {evaluation_id}",
        f"pagemill eval wait {evaluation_id}",
        end=f"pagemill eval cancel {evaluation_id}",
    )
