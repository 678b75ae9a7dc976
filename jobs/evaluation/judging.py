"""Scorers that ask a model: their jobs, and what the replies say of each row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs.api.given import DictSource
from jobs.errors import RowError
from jobs.evaluation.answers import AnsweredRow, answered_rows
from jobs.evaluation.rows import Score, ScoredRow, missing
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.judge import Judge
from jobs.evaluation.spec import EvaluationSpec
from jobs.records import JobRecord
from jobs.records.evaluations import EvaluationRecord
from jobs.results import open_version
from jobs.storage import Storage
from jobs.store import Store

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment


def judges_of(scorers: Mapping[str, Scorer]) -> dict[str, Judge]:
    """Those scorers that need a job of their own."""
    return {name: scorer for name, scorer in scorers.items() if isinstance(scorer, Judge)}


def judge_key(evaluation_id: str, scorer: str) -> str:
    """The idempotency key of the job of a judge."""
    return f"evaluation:{evaluation_id}:{scorer}"


def submit_judge(
    deployment: Deployment,
    evaluation: EvaluationRecord,
    spec: EvaluationSpec,
    name: str,
    judge: Judge,
    answered: JobRecord,
) -> JobRecord | None:
    """Queue the job of a judge, unless it is there; None where there is nothing to judge.

    One that was asked before the answers were given that there are now is not it.

    Raises:
        JobsError: its options cannot work, or it cannot be queued.
    """
    from jobs.api.options import submission_from
    from jobs.cli.submitting import queue_job

    key = judge_key(evaluation.id, name)
    before = deployment.store.job_of_key(key)
    if before is not None and _is_older(before, answered):
        key = f"{key}:v{answered.version}"
        before = deployment.store.job_of_key(key)
    if before is not None:
        return before
    rows = answered_rows(deployment.store, deployment.storage, answered, spec.target)
    asked = _asked(judge, rows)
    first = next(asked, None)
    if first is None:
        return None
    shown = f"<answers of {answered.id}>"
    model = judge.model or spec.model
    submission = submission_from(deployment, shown, model, judge.job_options)
    submission = replace(
        submission,
        input=DictSource(shown, rows=itertools.chain([first], asked)),
        name=f"{evaluation.name}: {name}"[:255],
        seed=spec.seed,
        idempotency_key=key,
    )
    job, _ = queue_job(deployment, submission)
    deployment.wake(job.model)
    return job


def _is_older(judged: JobRecord, answered: JobRecord) -> bool:
    """Whether a judge was asked before its answers were answered once more."""
    return answered.finished_at is not None and judged.created_at < answered.finished_at


def _asked(judge: Judge, rows: Iterator[AnsweredRow]) -> Iterator[dict[str, Any]]:
    """What the judge is asked of each row that has an answer."""
    for answered in rows:
        if judge.unscored(answered.row) is not None or answered.row.answer is None:
            continue
        try:
            yield judge.job_row(answered.row)
        except RowError:  # it is missing, which `Verdicts` says
            continue


class Verdicts:
    """The replies of a judge, which come in the order of the rows that it was asked of."""

    def __init__(self, store: Store, storage: Storage, judge: Judge, job_id: str | None) -> None:
        self._judge = judge
        job = None if job_id is None else store.job(job_id)
        self._replies = iter(()) if job is None else _replies(storage, job)
        self._next = next(self._replies, None)

    def of(self, row: ScoredRow) -> Score:
        """The score of a row; rows are asked for in their order."""
        while self._next is not None and self._next[0] < row.row_index:
            self._next = next(self._replies, None)
        if (unscored := self._judge.unscored(row)) is not None:
            return unscored
        if self._next is None or self._next[0] != row.row_index:
            return missing("the judge was not asked: " + self._why_not(row))
        _, text, error = self._next
        return self._judge.read(text, error)

    def _why_not(self, row: ScoredRow) -> str:
        if row.answer is None:
            return "there is no answer"
        try:
            self._judge.job_row(row)
        except RowError as error:
            return str(error)
        return "its job has no such row"


def _replies(storage: Storage, job: JobRecord) -> Iterator[tuple[int, str | None, str | None]]:
    """Number of the judged row, reply, and code of an error."""
    for table in open_version(storage, job).groups(["custom_id", "text", "error"]):
        for row in table.to_pylist():
            error = row["error"]
            if (row["custom_id"] or "").isdecimal():
                text = None if error else row["text"]
                yield int(row["custom_id"]), text, error["code"] if error else None
