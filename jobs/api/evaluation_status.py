"""Where an evaluation stands, and what came out: what `pagemill eval show --json` prints, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobs.api.status import Failure
from jobs.evaluation.gate import Finding
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationState,
    ScoreRecord,
    Trigger,
    Verdict,
)

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment
    from jobs.records.evaluations import EvaluationRecord


@dataclass(frozen=True, slots=True)
class EvaluationStatus:
    """An evaluation at one moment; docs/evaluations.md tells of each part.

    Attributes:
        name: of its series.
        state: an `EvaluationState`, which is a text too: `status.state == "completed"`.
        verdict: what its gate says; None until it has ended, or if it was skipped or cancelled.
        metrics: what came out for all rows, by scorer, in the order in which they were given.
        slices: what came out for each value of the columns that it is sliced by.
        comparisons: how each scorer differs from the baseline and from the evaluation before.
        findings: what the gate says, rule by rule.
        dataset_hash, dataset_rows: of what it read, once it did.
        scores_path: of the file of scores, once it is there.
        error: why it failed; or, while `error.code` is empty, why a step is tried again.
        spec: all that was asked, without the secrets of its URLs.
    """

    id: str
    name: str
    state: EvaluationState
    verdict: Verdict | None
    metrics: Mapping[str, ScoreRecord]
    slices: Sequence[ScoreRecord]
    comparisons: Sequence[ComparisonRecord]
    findings: Sequence[Finding]
    trigger: Trigger
    model: str
    job_id: str | None
    judge_jobs: Mapping[str, str]
    dataset_hash: str | None
    dataset_rows: int | None
    scores_path: str | None
    error: Failure | None
    created_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    blessed_at: datetime | None
    rescored_at: datetime | None
    spec: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed, skipped or cancelled."""
        return self.state.terminal

    def __str__(self) -> str:
        values = (
            f"{name} {'none' if found.value is None else format(found.value, '.4f')}"
            for name, found in self.metrics.items()
        )
        verdict = () if self.verdict is None else (str(self.verdict),)
        return ", ".join((f"{self.id} of {self.name} {self.state}", *verdict, *values))


def evaluation_status(deployment: Deployment, found: EvaluationRecord) -> EvaluationStatus:
    """The status of an evaluation, of the very values that the command line prints."""
    from jobs.evaluation_shape import in_order, shown_spec

    store = deployment.store
    scores = in_order(found, store.evaluation_scores(found.id))
    error = None
    if found.error_message is not None:
        error = Failure(found.error_code or "", found.error_message)
    path = found.scores_path
    return EvaluationStatus(
        id=found.id,
        name=found.name,
        state=found.state,
        verdict=found.verdict,
        metrics={score.scorer: score for score in scores if not score.slice_column},
        slices=tuple(score for score in scores if score.slice_column),
        comparisons=tuple(store.evaluation_comparisons(found.id)),
        findings=tuple(Finding(**finding) for finding in found.findings),
        trigger=found.trigger,
        model=str(found.spec.get("model")),
        job_id=found.job_id,
        judge_jobs=dict(found.judge_jobs),
        dataset_hash=found.dataset_hash,
        dataset_rows=found.dataset_rows,
        scores_path=None if path is None else str(deployment.storage.root / path),
        error=error,
        created_at=found.created_at,
        due_at=found.due_at,
        started_at=found.started_at,
        finished_at=found.finished_at,
        blessed_at=found.blessed_at,
        rescored_at=found.rescored_at,
        spec=shown_spec(found.spec),
    )
