"""Schedules, evaluations and notifications, as SQL has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class CatchUp(StrEnum):
    """What becomes of times that passed while nobody looked at the clock."""

    SKIP = "skip"  # none of them is run
    LATEST = "latest"  # the last of them is run
    ALL = "all"  # each is run, in order


class Overlap(StrEnum):
    """What becomes of a time at which an earlier evaluation of the schedule still runs."""

    SKIP = "skip"  # it is skipped, and says so
    WAIT = "wait"  # it begins when the earlier one has ended
    ALLOW = "allow"  # both run


class Trigger(StrEnum):
    CRON = "cron"  # its time had come
    MANUAL = "manual"  # `pagemill schedule run-now`
    ONCE = "once"  # `pagemill eval run`, without a schedule


class EvaluationState(StrEnum):
    PENDING = "pending"  # due; its job is not submitted yet
    ANSWERING = "answering"  # its job is on its way
    JUDGING = "judging"  # jobs that judge its answers are on their way
    SCORING = "scoring"  # all answers are there
    COMPLETED = "completed"  # its scores are there
    FAILED = "failed"  # it could not be done: `error_code` and `error_message`
    SKIPPED = "skipped"  # an earlier one still ran
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in _ENDED


_ENDED = frozenset(
    {
        EvaluationState.COMPLETED,
        EvaluationState.FAILED,
        EvaluationState.SKIPPED,
        EvaluationState.CANCELLED,
    }
)


class Verdict(StrEnum):
    """What the gate says of an evaluation that has ended."""

    PASSED = "passed"
    REGRESSED = "regressed"  # a rule is broken
    INCOMPLETE = "incomplete"  # more rows have no score than may
    FAILED = "failed"  # there is nothing to judge: the evaluation failed
    UNGATED = "ungated"  # no gate was asked for


class Interval(StrEnum):
    """How a 95% interval was found."""

    WILSON = "wilson"
    BOOTSTRAP = "bootstrap"


class Role(StrEnum):
    """What an evaluation is compared with."""

    BASELINE = "baseline"  # the one of the same name that was blessed last
    PREVIOUS = "previous"  # the one of the same name that was completed last


class Method(StrEnum):
    """How the p-value of a paired comparison was found."""

    MCNEMAR = "mcnemar"
    BOOTSTRAP = "bootstrap"


class NotificationState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # it was tried for as long as it may


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A row of the `schedules` table.

    Attributes:
        cron: five fields, in the time zone.
        timezone: IANA name.
        spec: what `jobs.evaluation.spec` reads.
        dataset_hash: of the rows as they were when the schedule was made; None where they may
            change.
        next_due_at: the first time that is not dealt with; None if there will be none, or while it
            is paused.
    """

    id: str
    name: str
    cron: str
    timezone: str
    spec: Mapping[str, Any]
    dataset_hash: str | None
    catch_up: CatchUp
    overlap: Overlap
    created_at: datetime
    paused_at: datetime | None
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """A row of the `evaluations` table: one run of an evaluation.

    Attributes:
        name: that of its schedule, or one that was given. Those of one name are a series.
        due_at: the time of the schedule that it is for; None if it was asked for by hand.
        spec: a copy of what was asked when it became due.
        expected_hash: what the data set has to be; None if it may be anything.
        judge_jobs: ids of jobs, by the names of the scorers that need them.
        dataset_hash: of the rows that it read, once it did.
        scores_path: of its file of scores, relative to the storage.
        findings: what the gate says of each rule: `rule`, `passed`, `sentence`.
        epoch: fencing token of its last lease.
        rescored_at: when its answers were scored once more, after its end.
    """

    id: str
    name: str
    schedule_id: str | None
    due_at: datetime | None
    trigger: Trigger
    spec: Mapping[str, Any]
    expected_hash: str | None
    state: EvaluationState
    job_id: str | None
    judge_jobs: Mapping[str, str]
    dataset_hash: str | None
    dataset_rows: int | None
    scores_path: str | None
    verdict: Verdict | None
    findings: Sequence[Mapping[str, Any]]
    error_code: str | None
    error_message: str | None
    epoch: int
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    blessed_at: datetime | None
    rescored_at: datetime | None


@dataclass(frozen=True, slots=True)
class EvaluationLease:
    """The right to take the next step of an evaluation, until it runs out."""

    evaluation: EvaluationRecord
    owner: str

    @property
    def id(self) -> str:
        return self.evaluation.id

    @property
    def epoch(self) -> int:
        return self.evaluation.epoch


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """A row of the `evaluation_scores` table: what came out, of all rows or of a slice.

    Attributes:
        slice_column, slice_value: both empty for all rows.
        rows: how many have a score.
        missing: how many should have one.
        value: mean of the scores, or the corpus's score; None without any.
        low, high: ends of the 95% interval.
    """

    scorer: str
    slice_column: str
    slice_value: str
    rows: int
    missing: int
    value: float | None
    low: float | None
    high: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class ComparisonRecord:
    """A row of the `evaluation_comparisons` table: a scorer's difference to an earlier run.

    Attributes:
        other_id: the earlier evaluation.
        pairs: rows that both have a score for.
        better, worse: of those, how many have a higher or a lower score now.
        unpaired: rows that only one of the two has a score for.
        difference: the mean over the pairs, now less then.
        low, high: ends of its 95% interval.
    """

    role: Role
    scorer: str
    other_id: str
    pairs: int
    better: int
    worse: int
    unpaired: int
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    method: Method | None


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """All that comes out of an evaluation.

    Attributes:
        scores_path: of the file with the score of each row, below the storage.
        findings: what came of each rule of the gate, as JSON objects.
    """

    scores_path: str
    scores: Sequence[ScoreRecord]
    comparisons: Sequence[ComparisonRecord]
    verdict: Verdict
    findings: Sequence[Mapping[str, Any]]

    def values(self) -> dict[str, Any]:
        """What the evaluation's own row has of it."""
        return {
            "scores_path": self.scores_path,
            "verdict": self.verdict,
            "findings": [dict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class NotificationRecord:
    """A row of the `notifications` table."""

    id: str
    subject: str
    event: str
    url: str
    body: Mapping[str, Any]
    state: NotificationState
    attempts: int
    next_at: datetime
    error: str | None
    created_at: datetime
    delivered_at: datetime | None
