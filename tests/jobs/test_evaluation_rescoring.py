"""Evaluations that have ended are scored once more, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.cli.deployment import Deployment
from jobs.errors import StateConflict
from jobs.evaluation.rescoring import rescored
from jobs.records.evaluations import EvaluationRecord, EvaluationResults, EvaluationState, Verdict
from jobs.retry import plan_retry
from jobs.settings import Settings
from jobs.states import JobState
from jobs.storage import Storage
from tests.support.job_store import StoreUnderTest
from tests.support.played_evaluation import PlayedEvaluations, right, right_but

Says = Callable[[int], str | None]
FEW_WRONG = right_but(1, 2)


def lacking(*rows: int, says: Says = FEW_WRONG) -> Says:
    return lambda row: None if row in rows else says(row)


@pytest.fixture
def played(back: StoreUnderTest, tmp_path: Path) -> PlayedEvaluations:
    storage = Storage(str(tmp_path / "storage"))
    played = PlayedEvaluations(back.store, storage, Settings.from_env(), tmp_path / "rows.jsonl")
    played.write()
    return played


def retried(played: PlayedEvaluations, job_id: str | None, says: Says | None = None) -> None:
    """Reopen a job; answer its rows, if it is told how."""
    assert job_id is not None
    plan, counts = plan_retry(played.store, played.storage, job_id)
    played.store.reopen(job_id, plan, counts)
    if says is not None:
        played.answer(job_id, says)


def again(
    played: PlayedEvaluations, id: str, to_its_end: Callable[[Any], bool] = lambda _: False
) -> EvaluationRecord | None:
    deployment = Deployment(played.settings, played.store, played.storage)
    return rescored(deployment, id, to_its_end)


def test_rows_that_were_answered_since_are_scored(played: PlayedEvaluations) -> None:
    played.gate = {"rules": ["exact>=0.9"]}
    played.store.bless(played.run(FEW_WRONG).id)
    ended = played.run(lacking(3, 4, says=right))
    assert (ended.verdict, ended.rescored_at) == (Verdict.INCOMPLETE, None)
    retried(played, ended.job_id, right)
    found = again(played, ended.id)
    assert found is not None
    assert found.rescored_at is not None
    assert found.scores_path != ended.scores_path
    same = {"verdict": Verdict.PASSED, "epoch": ended.epoch + 1}
    assert found == replace(
        ended, **same, findings=found.findings, scores_path=found.scores_path,
        rescored_at=found.rescored_at,
    )  # fmt: skip
    assert [finding["passed"] for finding in found.findings] == [True]
    whole = played.store.evaluation_scores(ended.id)[0]
    assert (whole.value, whole.rows, whole.missing) == (1.0, 40, 0)
    assert [c.pairs for c in played.store.evaluation_comparisons(ended.id)] == [40, 40]
    rows = pq.read_table(played.storage.root / (found.scores_path or ""))
    assert rows["score.exact"].to_pylist() == [1.0] * 40
    third = again(played, ended.id)  # nothing is new: it is the same once more
    assert third is not None
    assert (third.verdict, third.findings) == (found.verdict, found.findings)
    assert played.drive() == 0


def test_judges_are_asked_anew_of_new_answers_alone(played: PlayedEvaluations) -> None:
    found = played.add(spec={"scorers": [{"scorer": "judge", "name": "says"}]})
    played.drive()
    job_id = played.store.evaluation(found.id).job_id
    played.answer(job_id, lacking(5))
    played.drive()
    (judge,) = played.store.evaluation(found.id).judge_jobs.values()
    played.answer(judge, lambda row: None if row == 7 else "Verdict: yes")
    while played.drive(found.id):
        pass
    assert played.store.evaluation_scores(found.id)[0].missing == 2

    retried(played, judge, lambda _: "Verdict: no")
    first = again(played, found.id)
    assert first is not None
    assert first.judge_jobs == {"says": judge}  # what it was asked of is still what was answered
    whole = played.store.evaluation_scores(found.id)[0]
    assert (whole.rows, whole.missing, whole.value) == (39, 1, 38 / 39)

    retried(played, job_id, right)
    waited = []

    def answer(job: Any) -> bool:
        waited.append(job.id)
        played.answer(job.id, lambda _: "Verdict: yes")
        return True

    assert again(played, found.id) is None  # its judge has not ended
    second = again(played, found.id, answer)
    assert second is not None
    assert second.judge_jobs == {"says": waited[0]} != first.judge_jobs
    new = played.store.job(waited[0])
    assert (new.idempotency_key, new.total_rows) == (f"evaluation:{found.id}:says:v2", 40)
    whole = played.store.evaluation_scores(found.id)[0]
    assert (whole.rows, whole.missing, whole.value) == (40, 0, 1.0)


def test_one_that_failed_for_its_job_is_completed(played: PlayedEvaluations) -> None:
    found = played.add()
    played.drive()
    job_id = played.store.evaluation(found.id).job_id
    played.store.request_cancel(job_id or "")
    played.answer(job_id)
    played.drive()
    assert played.store.evaluation(found.id).error_code == "job_cancelled"
    with pytest.raises(StateConflict, match="is cancelled; its rows cannot be scored"):
        again(played, found.id)
    retried(played, job_id)
    assert again(played, found.id) is None  # the time for its job ran out

    def answer(job: Any) -> bool:
        played.answer(job.id)
        return True

    done = again(played, found.id, answer)
    assert done is not None
    assert (done.state, done.verdict) == (EvaluationState.COMPLETED, Verdict.UNGATED)
    assert (done.error_code, done.error_message) == (None, None)


def test_what_has_no_answers_is_refused(played: PlayedEvaluations) -> None:
    pending = played.add()
    with pytest.raises(StateConflict, match=f"is pending.*pagemill eval wait {pending.id}"):
        again(played, pending.id)
    played.store.cancel_evaluation(pending.id)
    with pytest.raises(StateConflict, match="is cancelled and has no answers"):
        again(played, pending.id)
    skipped = played.add(skipped=("overlap", "another still ran"))
    with pytest.raises(StateConflict, match="is skipped and has no answers: another still ran"):
        again(played, skipped.id)
    ended = played.run(right)
    played.store.delete_job(ended.job_id or "")
    with pytest.raises(StateConflict, match="was deleted"):
        again(played, ended.id)
    assert played.store.evaluation(ended.id).verdict is Verdict.UNGATED


def test_one_at_a_time_does_it(played: PlayedEvaluations) -> None:
    ended = played.run(right)
    lease = played.store.claim_ended_evaluation(ended.id, "another")
    assert lease is not None
    with pytest.raises(StateConflict, match="is being scored by another process"):
        again(played, ended.id)
    assert played.store.leave_evaluation(lease, 0)
    assert again(played, ended.id) is not None
    late = EvaluationResults("evaluations/late", [], [], Verdict.PASSED, [])
    assert not played.store.replace_evaluation_results(lease, late)
    assert len(played.store.evaluation_scores(ended.id)) == 3


def test_what_goes_wrong_leaves_all_as_it_was(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = played.run(FEW_WRONG)
    scores = played.store.evaluation_scores(ended.id)
    with monkeypatch.context() as patch:
        patch.setattr("jobs.store.evaluation_rescoring.insert_results", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            again(played, ended.id)
    assert played.store.evaluation(ended.id) == replace(ended, epoch=ended.epoch + 1)
    assert played.store.evaluation_scores(ended.id) == scores
    assert again(played, ended.id) is not None  # at once: the lease was let go


def test_a_file_of_scores_that_is_gone_is_made_again(played: PlayedEvaluations) -> None:
    ended = played.run(FEW_WRONG)
    (played.storage.root / (ended.scores_path or "")).unlink()
    found = again(played, ended.id)
    assert found is not None
    assert pq.read_table(played.storage.root / (found.scores_path or "")).num_rows == 40
    assert played.store.job(found.job_id or "").state is JobState.COMPLETED
