"""Evaluations in SQL: who may take a step, in which order, and what is kept."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest
from sqlalchemy import insert, update

from jobs.errors import EvaluationNotFound, StateConflict
from jobs.evaluation_tables import evaluations, schedules
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationResults,
    EvaluationState,
    Interval,
    Method,
    Role,
    ScoreRecord,
    Trigger,
    Verdict,
)
from jobs.sqltypes import database_now
from tests.support.evaluations import SPEC, add_evaluation, claimed
from tests.support.job_store import StoreUnderTest

pytestmark = pytest.mark.quick

DUE = datetime(2030, 1, 31, 2, tzinfo=UTC)
SCORE = ScoreRecord("exact", "", "", 60, 2, 0.5, 0.4, 0.6, Interval.WILSON)
COMPARED = ComparisonRecord(
    Role.PREVIOUS, "exact", "eval_before", 58, 3, 9, 2, -0.1, -0.2, -0.01, 0.04, Method.MCNEMAR
)


def set_row(back: StoreUnderTest, evaluation_id: str, **values: object) -> None:
    with back.database.begin() as connection:
        connection.execute(
            update(evaluations).where(evaluations.c.id == evaluation_id).values(**values)
        )


def let_lease_run_out(back: StoreUnderTest, evaluation_id: str) -> None:
    set_row(back, evaluation_id, lease_expires_at=database_now(-1.0))


def complete(back: StoreUnderTest, evaluation_id: str) -> None:
    store = back.store
    assert store.move_evaluation(claimed(store, evaluation_id), EvaluationState.SCORING)
    lease = claimed(store, evaluation_id)
    results = EvaluationResults("p", [SCORE], [COMPARED], Verdict.PASSED, [])
    assert store.finish_evaluation(lease, results)


def test_of_a_time_of_a_schedule_there_is_one_evaluation(back: StoreUnderTest) -> None:
    of_time = {"schedule_id": "sched_1", "due_at": DUE, "trigger": Trigger.CRON}
    first = add_evaluation(back.store, **of_time)
    with pytest.raises(AssertionError):
        add_evaluation(back.store, **of_time)
    assert [e.id for e in back.store.list_evaluations("nightly")] == [first.id]
    # By hand there may be any number.
    add_evaluation(back.store, schedule_id="sched_1")
    add_evaluation(back.store, schedule_id="sched_1")


def test_a_skipped_one_has_ended_and_says_why(back: StoreUnderTest) -> None:
    skipped = add_evaluation(back.store, skipped=("overlap", "eval_1 still runs"))
    assert skipped.state is EvaluationState.SKIPPED
    assert skipped.finished_at is not None
    assert (skipped.error_code, skipped.error_message) == ("overlap", "eval_1 still runs")
    assert back.store.evaluations_due() == []


def test_it_is_found_by_the_start_of_its_id(back: StoreUnderTest) -> None:
    for id in ("eval_abcdefgh", "eval_abcdxyz", "eval_zzzzz"):
        add_evaluation(back.store, id=id)
    assert back.store.evaluation("eval_zzzz").id == "eval_zzzzz"
    with pytest.raises(EvaluationNotFound, match="eval_abcdefgh, eval_abcdxyz"):
        back.store.evaluation("eval_abcd")
    with pytest.raises(EvaluationNotFound, match="9 characters"):
        back.store.evaluation("eval_zz")


def test_one_of_two_claims_it(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    assert back.store.evaluations_due() == [found.id]
    claimed(back.store, found.id, "a")
    assert back.store.claim_evaluation(found.id, "b", at_once=True) is None
    assert back.store.evaluations_due() == []


def test_many_at_once_get_one_lease(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    barrier, leases = Barrier(4), []

    def claim(owner: str) -> None:
        barrier.wait()
        leases.append(back.store.claim_evaluation(found.id, owner))

    threads = [Thread(target=claim, args=(f"d{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(lease is not None for lease in leases) == 1


def test_a_lease_that_ran_out_is_fenced_and_counts(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    old = claimed(back.store, found.id, "a")
    let_lease_run_out(back, found.id)
    new = claimed(back.store, found.id, "b")
    assert new.epoch == old.epoch + 1
    assert new.evaluation.attempts == 1
    assert not back.store.renew_evaluation(old)
    assert not back.store.move_evaluation(old, EvaluationState.ANSWERING, job_id="job_old")
    assert not back.store.fail_evaluation(old, "x", "y")
    assert back.store.move_evaluation(new, EvaluationState.ANSWERING, job_id="job_new")
    moved = back.store.evaluation(found.id)
    assert (moved.job_id, moved.attempts) == ("job_new", 0)


def test_a_step_that_was_tried_in_vain_waits(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    lease = claimed(back.store, found.id)
    assert back.store.retry_evaluation_later(lease, "no disk", 60, counts=True)
    waiting = back.store.evaluation(found.id)
    assert (waiting.attempts, waiting.error_message) == (1, "no disk")
    assert back.store.evaluations_due() == []
    assert back.store.claim_evaluation(found.id, "b") is None
    assert back.store.evaluations_due(found.id) == []


def test_whoever_waits_for_it_need_not_wait(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    assert back.store.leave_evaluation(claimed(back.store, found.id), 60)
    assert back.store.evaluations_due() == []
    assert back.store.evaluations_due(found.id) == [found.id]


def test_it_is_due_when_its_job_has_ended(back: StoreUnderTest) -> None:
    job = back.add((1,))
    found = add_evaluation(back.store)
    lease = claimed(back.store, found.id)
    assert back.store.move_evaluation(lease, EvaluationState.ANSWERING, job_id=job.id)
    assert back.store.evaluations_due(found.id) == []
    back.complete(job.id)
    assert back.store.evaluations_due() == [found.id]
    back.store.delete_job(job.id)
    assert back.store.evaluations_due() == [found.id]  # which then fails


@pytest.mark.parametrize("overlap", ["wait", "allow"])
def test_those_of_a_schedule_wait_for_each_other(back: StoreUnderTest, overlap: str) -> None:
    with back.database.begin() as connection:
        connection.execute(
            insert(schedules).values(
                id="sched_1", name="nightly", cron="0 2 * * *", timezone="UTC", spec=SPEC,
                catch_up="all", overlap=overlap, created_at=database_now(),
            )
        )  # fmt: skip
    # As one look at the clock makes them: the ids tell nothing of the order.
    for id, days in (("eval_c", 0), ("eval_b", 1), ("eval_a", 2)):
        due = DUE + timedelta(days=days)
        add_evaluation(back.store, id=id, schedule_id="sched_1", due_at=due, trigger=Trigger.CRON)
        set_row(back, id, created_at=DUE + timedelta(days=5))
    other = add_evaluation(back.store, "other")
    if overlap == "allow":
        assert len(back.store.evaluations_due()) == 4
        return
    order = []
    while due_now := set(back.store.evaluations_due()) - {other.id}:
        (id,) = due_now
        order.append(id)
        back.store.cancel_evaluation(id)
    assert order == ["eval_c", "eval_b", "eval_a"]


def test_its_results_come_with_its_end(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    assert back.store.move_evaluation(claimed(back.store, found.id), EvaluationState.SCORING)
    lease = claimed(back.store, found.id)
    findings = [{"rule": "exact>=0.8", "passed": False, "sentence": "0.5 is under 0.8"}]
    results = EvaluationResults(
        "evaluations/x/scores-e2.parquet", [SCORE], [COMPARED], Verdict.REGRESSED, findings
    )
    assert back.store.finish_evaluation(lease, results)
    assert back.store.finish_evaluation(lease, results)  # an answer that was lost on its way
    ended = back.store.evaluation(found.id)
    assert (ended.state, ended.verdict) == (EvaluationState.COMPLETED, Verdict.REGRESSED)
    assert ended.findings == findings
    assert back.store.evaluation_scores(found.id) == [SCORE]
    assert back.store.evaluation_comparisons(found.id) == [COMPARED]
    assert not back.store.fail_evaluation(lease, "x", "y")


def test_the_baseline_is_the_one_that_was_blessed_last(back: StoreUnderTest) -> None:
    first, second, third = (add_evaluation(back.store).id for _ in range(3))
    for number, id in enumerate((first, second, third)):
        set_row(back, id, created_at=DUE + timedelta(days=number))
        complete(back, id)
    asks = back.store.evaluation(third)
    assert back.store.baseline_of("nightly") is None
    for id in (second, first):
        back.store.bless(id)
    set_row(back, second, blessed_at=DUE)
    set_row(back, first, blessed_at=DUE + timedelta(days=1))
    baseline, previous = (
        ask("nightly", asks) for ask in (back.store.baseline_of, back.store.previous_of)
    )
    assert (baseline and baseline.id, previous and previous.id) == (first, second)
    back.store.bless(first, remove=True)
    baseline = back.store.baseline_of("nightly", asks)
    assert baseline is not None
    assert baseline.id == second
    assert back.store.previous_of("nightly", back.store.evaluation(first)) is None
    assert back.store.previous_of("another", asks) is None


def test_only_a_completed_one_can_be_blessed(back: StoreUnderTest) -> None:
    found = add_evaluation(back.store)
    with pytest.raises(StateConflict, match="only a completed one"):
        back.store.bless(found.id)


def test_cancelled_is_cancelled(back: StoreUnderTest) -> None:
    found, other = add_evaluation(back.store), add_evaluation(back.store)
    lease = claimed(back.store, found.id)
    for _ in range(2):
        assert back.store.cancel_evaluation(found.id).state is EvaluationState.CANCELLED
    assert not back.store.move_evaluation(lease, EvaluationState.ANSWERING, job_id="job_x")
    complete(back, other.id)
    with pytest.raises(StateConflict, match="completed and cannot be cancelled"):
        back.store.cancel_evaluation(other.id)


def test_what_has_ended_can_be_forgotten(back: StoreUnderTest) -> None:
    ended, runs, blessed, young = (add_evaluation(back.store).id for _ in range(4))
    for id in (ended, blessed, young):
        complete(back, id)
    back.store.bless(blessed)
    for id in (ended, blessed):
        set_row(back, id, finished_at=database_now(-100.0))
    with pytest.raises(StateConflict, match=f"pagemill eval cancel {runs}"):
        back.store.delete_evaluation(runs)
    assert [e.id for e in back.store.evaluations_that_ended(50)] == [ended]
    assert not back.store.delete_evaluation(blessed, 50)
    assert not back.store.delete_evaluation(young, 50)
    assert back.store.delete_evaluation(ended, 50)
    assert {e.id for e in back.store.list_evaluations()} == {runs, blessed, young}
    assert back.store.deletions() == [(ended, f"evaluations/{ended}")]
    assert back.store.evaluation_scores(ended) == []
    assert back.store.delete_evaluation(blessed)
    assert {id for id, _ in back.store.deletions()} == {ended, blessed}
    with pytest.raises(EvaluationNotFound):
        back.store.delete_evaluation(ended)


def test_scores_of_all_rows_are_read_of_several_at_once(back: StoreUnderTest) -> None:
    ids = [add_evaluation(back.store).id for _ in range(3)]
    sliced = dataclasses.replace(SCORE, slice_column="topic", slice_value="law")
    for evaluation_id in ids[:2]:
        assert back.store.move_evaluation(
            claimed(back.store, evaluation_id), EvaluationState.SCORING
        )
        lease = claimed(back.store, evaluation_id)
        results = EvaluationResults("p", [SCORE, sliced], [], Verdict.PASSED, [])
        assert back.store.finish_evaluation(lease, results)

    assert back.store.overall_scores(ids) == {ids[0]: [SCORE], ids[1]: [SCORE]}
    assert back.store.overall_scores([]) == {}
