"""Evaluations from their first step to their last, on both databases, with played workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sqlalchemy import select, update

from jobs.errors import StorageUnavailable
from jobs.evaluation import runs, scoring
from jobs.evaluation.scorers.texts import Exact
from jobs.evaluation_tables import evaluations, notifications
from jobs.normalize import NormalizedWriter
from jobs.records.evaluations import EvaluationState, Role, Verdict
from jobs.retry import plan_retry
from jobs.settings import Settings
from jobs.sqltypes import database_now
from jobs.states import JobState
from jobs.storage import Storage
from tests.support.job_store import StoreUnderTest
from tests.support.played_evaluation import ROWS, PlayedEvaluations, right, right_but

FEW_WRONG, MANY_WRONG = right_but(1, 2), right_but(*range(1, 17))


@pytest.fixture
def played(back: StoreUnderTest, tmp_path: Path) -> PlayedEvaluations:
    storage = Storage(str(tmp_path / "storage"))
    played = PlayedEvaluations(
        back.store, storage, Settings.from_env(), tmp_path / "rows.jsonl",
    )  # fmt: skip
    played.write()
    return played


def set_row(back: StoreUnderTest, evaluation_id: str, **values: object) -> None:
    with back.database.begin() as connection:
        connection.execute(
            update(evaluations).where(evaluations.c.id == evaluation_id).values(**values)
        )


def state_of(played: PlayedEvaluations, evaluation_id: str) -> EvaluationState:
    return played.store.evaluation(evaluation_id).state


def test_from_rows_to_scores(played: PlayedEvaluations) -> None:
    found = played.add()
    assert played.drive() == 1
    answering = played.store.evaluation(found.id)
    assert answering.state is EvaluationState.ANSWERING
    assert (answering.dataset_rows, len(answering.dataset_hash or "")) == (40, 64)
    job = played.store.job(answering.job_id or "")
    assert (job.name, job.seed, job.idempotency_key) == ("nightly", 0, f"evaluation:{found.id}")
    assert played.drive() == 0  # there is nothing to do until the job has ended
    played.answer(job.id, FEW_WRONG)
    assert [played.drive(), state_of(played, found.id)] == [1, EvaluationState.SCORING]
    assert [played.drive(), played.drive()] == [1, 0]
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.verdict) == (EvaluationState.COMPLETED, Verdict.UNGATED)
    whole, even, odd = played.store.evaluation_scores(found.id)
    assert (whole.value, whole.rows, whole.missing) == (38 / 40, 40, 0)
    assert (even.slice_value, even.value, odd.slice_value, odd.value) == ("even", 0.95, "odd", 0.95)
    assert played.store.evaluation_comparisons(found.id) == []


def test_the_file_has_each_row(played: PlayedEvaluations) -> None:
    ended = played.run(lambda row: None if row == 3 else FEW_WRONG(row))
    assert ended.scores_path == f"evaluations/{ended.id}/scores-e{ended.epoch}.parquet"
    rows = pq.read_table(played.storage.root / ended.scores_path).to_pylist()
    assert [row["row_index"] for row in rows] == list(range(40))
    keys = {row.pop("row_key") for row in rows}
    assert len(keys) == 40
    assert rows[1] == {
        "row_index": 1, "custom_id": None, "prompt": "What is 1 + 1?", "target": "2",
        "answer": "wrong", "error": None, "slices": '{"topic":"odd"}', "score.exact": 0.0,
        "note.exact": None,
    }  # fmt: skip
    assert (rows[3]["error"], rows[3]["answer"], rows[3]["score.exact"]) == (
        "nan_logits", None, None,
    )  # fmt: skip
    assert rows[3]["note.exact"] == "no answer: nan_logits"


def test_a_regression_is_found(played: PlayedEvaluations) -> None:
    played.gate = {"rules": ["exact:drop<=0.1,p<0.05"], "against": "baseline"}
    first = played.run(FEW_WRONG)
    assert first.verdict is Verdict.UNGATED  # there is nothing to compare with yet
    played.store.bless(first.id)
    second = played.run(MANY_WRONG)
    assert second.verdict is Verdict.REGRESSED
    assert "dropped" in second.findings[0]["sentence"]
    baseline, previous = played.store.evaluation_comparisons(second.id)
    assert (baseline.role, previous.role) == (Role.BASELINE, Role.PREVIOUS)
    for comparison in (baseline, previous):
        assert (comparison.other_id, comparison.pairs) == (first.id, 40)
        assert (comparison.better, comparison.worse) == (0, 14)
        assert comparison.difference == pytest.approx(-14 / 40)
    third = played.run(MANY_WRONG)
    assert third.verdict is Verdict.REGRESSED  # the baseline stays the one that was blessed
    after = {c.role: c for c in played.store.evaluation_comparisons(third.id)}
    assert after[Role.PREVIOUS].other_id == second.id
    assert after[Role.PREVIOUS].difference == 0


def test_another_system_message_is_compared_row_by_row(played: PlayedEvaluations) -> None:
    played.run(FEW_WRONG)
    second = played.run(FEW_WRONG, spec={"submit": {"system": "Be brief.", "max_tokens": 4}})
    (comparison,) = played.store.evaluation_comparisons(second.id)
    assert (comparison.pairs, comparison.unpaired) == (40, 0)


def test_another_template_is_compared_row_by_row(played: PlayedEvaluations) -> None:
    played.write([{**row, "asks": row["prompt"]} for row in ROWS])
    for template in ("{{ asks }}", "Say it: {{ asks }}"):
        ended = played.run(FEW_WRONG, spec={"submit": {"template": template}})
    (comparison,) = played.store.evaluation_comparisons(ended.id)
    assert (comparison.pairs, comparison.unpaired) == (40, 0)


def test_each_row_has_its_prompt_in_any_order_of_answering(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are answered in the order of their texts, a few at a time, in several windows."""
    small = partial(NormalizedWriter, window_rows=7)
    monkeypatch.setattr("jobs.submission.NormalizedWriter", small)
    ended = played.run(right, spec={"submit": {"chunk_rows": 2}})
    job_id = ended.job_id or ""
    assert len(played.store.windows(job_id)) == 6
    rows = pq.read_table(played.storage.root / (ended.scores_path or "")).to_pylist()
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in ROWS]
    assert [row["target"] for row in rows] == [row["target"] for row in ROWS]


def test_rows_that_were_answered_again_are_scored(played: PlayedEvaluations) -> None:
    found = played.add()
    played.drive()
    job_id = played.store.evaluation(found.id).job_id or ""
    played.answer(job_id, lambda row: None if row in (3, 4) else right(row))
    plan, counts = plan_retry(played.store, played.storage, job_id)
    played.store.reopen(job_id, plan, counts)
    assert played.drive(found.id) == 0  # not before that has ended, too
    played.answer(job_id, right)
    while played.drive(found.id):
        pass
    ended = played.store.evaluation(found.id)
    rows = pq.read_table(played.storage.root / (ended.scores_path or "")).to_pylist()
    assert [row["score.exact"] for row in rows] == [1.0] * 40
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in ROWS]


def test_rows_without_an_answer_make_it_incomplete(played: PlayedEvaluations) -> None:
    played.gate = {"rules": ["exact>=0.5"], "missing": 2}
    lacking = {3, 4, 5}
    ended = played.run(lambda row: None if row in lacking else right(row))
    assert ended.verdict is Verdict.INCOMPLETE
    lacking.pop()
    assert played.run(lambda row: None if row in lacking else right(row)).verdict is Verdict.PASSED


@pytest.mark.parametrize("how", ["failed", "cancelled", "deleted"])
def test_a_job_that_does_not_complete_ends_it(played: PlayedEvaluations, how: str) -> None:
    found = played.add()
    played.drive()
    job_id = played.store.evaluation(found.id).job_id or ""
    if how == "failed":
        played.store.fail_job(job_id, "model_unavailable", "there is no such model")
    else:
        played.store.request_cancel(job_id)
        played.answer(job_id)
    if how == "deleted":
        played.store.delete_job(job_id)
    played.drive()
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.verdict) == (EvaluationState.FAILED, Verdict.FAILED)
    assert ended.error_code == f"job_{how}"
    assert job_id in (ended.error_message or "")


def test_a_frozen_data_set_that_changed_is_refused(played: PlayedEvaluations) -> None:
    first = played.run(right)
    same = played.run(right, expected_hash=first.dataset_hash)
    assert same.state is EvaluationState.COMPLETED
    played.write([*ROWS[:-1], ROWS[-1] | {"target": "another"}])
    changed = played.add(expected_hash=first.dataset_hash)
    played.drive()
    ended = played.store.evaluation(changed.id)
    assert (ended.state, ended.error_code) == (EvaluationState.FAILED, "dataset_changed")
    assert "pagemill schedule add" in (ended.error_message or "")
    assert ended.job_id is None
    assert played.run(right).state is EvaluationState.COMPLETED  # nothing is expected of it


def test_what_cannot_be_read_is_tried_again_for_a_while(
    back: StoreUnderTest, played: PlayedEvaluations
) -> None:
    found = played.add()
    played.rows.rename(played.rows.with_suffix(".away"))
    for attempt in range(1, runs.MOST_ATTEMPTS):
        assert played.drive(found.id) == 0
        waiting = played.store.evaluation(found.id)
        assert (waiting.state, waiting.attempts) == (EvaluationState.PENDING, attempt)
        assert "there is no file" in (waiting.error_message or "")
        assert played.drive(found.id) == 0  # not at once
        assert played.store.evaluation(found.id).attempts == attempt
        set_row(back, found.id, look_at=database_now(-1.0))
    played.drive(found.id)
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.error_code) == (EvaluationState.FAILED, "dataset_unreadable")


def test_a_storage_that_is_away_is_waited_for(
    back: StoreUnderTest, played: PlayedEvaluations
) -> None:
    found = played.add()
    played.drive()
    played.answer(played.store.evaluation(found.id).job_id)
    root = played.storage.root
    away = root.rename(root.with_name("away"))
    for _ in range(runs.MOST_ATTEMPTS + 1):
        played.drive()
        set_row(back, found.id, look_at=database_now(-1.0))
    waiting = played.store.evaluation(found.id)
    assert (waiting.state, waiting.attempts) == (EvaluationState.SCORING, 0)
    assert "is not there" in (waiting.error_message or "")
    away.rename(root)
    assert played.drive() == 1
    assert played.store.evaluation(found.id).state is EvaluationState.COMPLETED


def test_a_file_that_is_there_again_is_read(
    back: StoreUnderTest, played: PlayedEvaluations
) -> None:
    found = played.add()
    away = played.rows.rename(played.rows.with_suffix(".away"))
    played.drive()
    away.rename(played.rows)
    set_row(back, found.id, look_at=database_now(-1.0))
    assert played.drive() == 1
    answering = played.store.evaluation(found.id)
    assert (answering.state, answering.error_message) == (EvaluationState.ANSWERING, None)


def test_whoever_dies_in_it_again_and_again_ends_it(
    back: StoreUnderTest, played: PlayedEvaluations
) -> None:
    found = played.add()
    for _ in range(runs.MOST_ATTEMPTS):
        assert played.store.claim_evaluation(found.id, "dies")
        set_row(back, found.id, lease_expires_at=database_now(-1.0))
    played.drive()
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.error_code) == (EvaluationState.FAILED, "internal_error")
    assert "died" in (ended.error_message or "")


def test_two_drivers_make_one_job_and_one_outcome(
    back: StoreUnderTest, played: PlayedEvaluations
) -> None:
    found = played.add()

    def at_once() -> None:
        barrier = Barrier(3)

        def drive(owner: str) -> None:
            barrier.wait()
            played.drive(owner=owner)

        threads = [Thread(target=drive, args=(f"d{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    at_once()
    assert len(played.store.list_jobs()) == 1
    played.answer(played.store.evaluation(found.id).job_id, FEW_WRONG)
    for _ in range(3):
        at_once()
    assert state_of(played, found.id) is EvaluationState.COMPLETED
    assert len(played.store.evaluation_scores(found.id)) == 3


def test_a_submit_whose_answer_was_lost_is_found_again(
    back: StoreUnderTest, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = played.add()
    with monkeypatch.context() as patch:
        patch.setattr(back.store, "move_evaluation", lambda *_, **__: 1 / 0)
        assert played.drive() == 0
    (job,) = played.store.list_jobs()
    set_row(back, found.id, look_at=database_now(-1.0))
    played.rows.unlink()  # nor are the rows needed again
    assert played.drive() == 1
    assert played.store.evaluation(found.id).job_id == job.id
    assert len(played.store.list_jobs()) == 1


def test_cancelled_while_its_job_is_submitted(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = played.add()
    real = played.store.note_dataset

    def note(*arguments: Any) -> bool:
        noted = real(*arguments)
        played.store.cancel_evaluation(found.id)
        return noted

    monkeypatch.setattr(played.store, "note_dataset", note)
    played.drive()
    (job,) = played.store.list_jobs()
    assert job.state in (JobState.CANCELLING, JobState.FINALIZING)
    assert state_of(played, found.id) is EvaluationState.CANCELLED


def test_its_end_is_told(back: StoreUnderTest, played: PlayedEvaluations) -> None:
    url = "https://example.com/hook?token=secret"
    ended = played.run(FEW_WRONG, spec={"notify": [url]})
    with back.database.read() as connection:
        (told,) = connection.execute(select(notifications)).all()
    assert (told.subject, told.event, told.url) == (ended.id, "evaluation.completed", url)
    assert told.body["verdict"] == "ungated"
    assert "secret" not in json.dumps(told.body)  # others are told the same
    assert told.body["scores"][0]["value"] == 38 / 40


def test_a_judge_is_asked_in_a_job_of_its_own(played: PlayedEvaluations) -> None:
    played.scorers = [{"scorer": "exact"}, {"scorer": "judge", "name": "says"}]
    found = played.add()
    played.drive()
    lacking = {5}
    answers = played.store.evaluation(found.id).job_id
    played.answer(answers, lambda row: None if row in lacking else FEW_WRONG(row))
    assert [played.drive(), state_of(played, found.id)] == [1, EvaluationState.JUDGING]
    judge = played.store.job(played.store.evaluation(found.id).judge_jobs["says"])
    assert (judge.total_rows, judge.idempotency_key) == (39, f"evaluation:{found.id}:says")
    assert played.drive() == 0
    played.answer(judge.id, lambda row: "Verdict: no" if row == 7 else "It is. Verdict: yes")
    while played.drive(found.id):
        pass
    ended = played.store.evaluation(found.id)
    assert ended.state is EvaluationState.COMPLETED
    rows = pq.read_table(played.storage.root / (ended.scores_path or "")).to_pylist()
    # The judge's seventh row is the eighth of ours, as it was not asked of the fifth.
    assert [r["row_index"] for r in rows if r["score.says"] == 0] == [8]
    assert rows[5]["score.says"] is None
    by_name = {s.scorer: s for s in played.store.evaluation_scores(found.id) if not s.slice_column}
    assert (by_name["says"].rows, by_name["says"].missing) == (39, 1)


def test_a_score_of_all_texts_is_compared(played: PlayedEvaluations) -> None:
    played.scorers = [{"scorer": "chrf"}]
    played.run(FEW_WRONG)
    second = played.run(MANY_WRONG)
    (comparison,) = played.store.evaluation_comparisons(second.id)
    assert comparison.pairs == 40
    assert comparison.difference is not None
    assert comparison.difference < 0


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_texts_are_counted_once(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And the value is that of sacrebleu for all of them together."""
    metric = {"bleu": BLEU, "chrf": CHRF}[name]
    count = metric._extract_corpus_statistics
    counted: list[str] = []

    def counting(self: Any, answers: list[str], references: Any) -> Any:
        counted.extend(answers)
        return count(self, answers, references)

    played.write([{**row, "target": f"{row['target']} it is, as all of us know"} for row in ROWS])
    says = [f"{n + 1} it is as all{' of us' * (n % 3)} know" for n in range(40)]
    with monkeypatch.context() as patch:
        patch.setattr(metric, "_extract_corpus_statistics", counting)
        ended = played.run(says.__getitem__, spec={"scorers": [{"scorer": name}]})
    assert counted == says
    targets = [f"{n + 1} it is, as all of us know" for n in range(40)]
    expected = metric().corpus_score(says, [targets]).score / 100
    assert played.store.evaluation_scores(ended.id)[0].value == pytest.approx(expected)


def test_scorers_are_let_go_however_it_ends(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr(Exact, "close", lambda self: closed.append(self))
    with monkeypatch.context() as patch:
        patch.setattr(Exact, "score_answer", lambda *_: 1 / 0)
        assert played.run(right).state is EvaluationState.SCORING
    assert len(closed) == 1
    assert played.run(right).state is EvaluationState.COMPLETED
    assert len(closed) == 2


def test_a_baseline_without_the_scorer_of_a_rule_passes_no_gate(
    played: PlayedEvaluations,
) -> None:
    played.store.bless(played.run(right).id)
    more = {"scorers": [{"scorer": "exact"}, {"scorer": "f1"}], "gate": {"rules": ["f1:drop<=0"]}}
    second = played.run(right, spec=more)
    assert second.verdict is Verdict.INCOMPLETE
    assert "bless one that has" in second.findings[0]["sentence"]
    played.store.bless(second.id)
    assert played.run(right, spec=more).verdict is Verdict.PASSED


def test_an_earlier_file_that_is_gone_is_not_compared_with(played: PlayedEvaluations) -> None:
    first = played.run(right)
    (played.storage.root / (first.scores_path or "")).unlink()
    second = played.run(right)
    assert second.state is EvaluationState.COMPLETED
    assert played.store.evaluation_comparisons(second.id) == []


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)  # the footer is whole
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [Path.unlink, lambda p: p.write_bytes(b"PAR1"), damage])
def test_a_baseline_that_cannot_be_read_passes_no_gate(
    played: PlayedEvaluations, harm: Callable[[Path], None]
) -> None:
    first = played.run(right)
    played.store.bless(first.id)
    harm(played.storage.root / (first.scores_path or ""))
    gate = {"rules": ["exact>=0", "exact:drop<=0.02"]}
    second = played.run(MANY_WRONG, spec={"gate": gate})
    assert (second.state, second.verdict) == (EvaluationState.COMPLETED, Verdict.INCOMPLETE)
    assert first.id in second.findings[1]["sentence"]
    assert "gone or damaged" in second.findings[1]["sentence"]


def test_a_storage_that_is_away_while_it_is_compared_passes_no_gate(
    back: StoreUnderTest, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = played.run(right)
    played.store.bless(first.id)
    real = scoring.ScoresFile

    def away(storage: Storage, path: str) -> Any:
        if path == first.scores_path:
            raise StorageUnavailable("the network is away", "storage")
        return real(storage, path)

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "ScoresFile", away)
        second = played.run(MANY_WRONG, spec={"gate": {"rules": ["exact:drop<=0.02"]}})
    assert (second.state, second.attempts) == (EvaluationState.SCORING, 0)
    set_row(back, second.id, look_at=database_now(-1.0))
    played.drive()
    assert played.store.evaluation(second.id).verdict is Verdict.REGRESSED


def test_a_step_that_lacks_memory_each_time_ends_it(
    back: StoreUnderTest, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(*_: Any) -> bool:
        raise MemoryError

    found = played.add()
    monkeypatch.setitem(runs._STEPS, EvaluationState.PENDING, lacks)
    for _ in range(runs.MOST_ATTEMPTS):
        played.drive()
        set_row(back, found.id, look_at=database_now(-1.0))
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.error_code) == (EvaluationState.FAILED, "internal_error")
    assert "MemoryError" in (ended.error_message or "")


def test_a_judge_that_is_deleted_before_its_replies_are_read_ends_it(
    played: PlayedEvaluations,
) -> None:
    found = played.add(spec={"scorers": [{"scorer": "judge"}]})
    played.drive()
    played.answer(played.store.evaluation(found.id).job_id)
    played.drive()
    (judge,) = played.store.evaluation(found.id).judge_jobs.values()
    played.answer(judge, lambda _: "Verdict: yes")
    played.drive()
    assert state_of(played, found.id) is EvaluationState.SCORING
    played.store.delete_job(judge)
    played.drive()
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.error_code) == (EvaluationState.FAILED, "judge_deleted")


def test_slices_of_any_name_are_kept(played: PlayedEvaluations) -> None:
    odd = ["a\0", "a\\x00", "\0" * 190, "\U0001f600" * 300, "(null)", "(other)", "", None]
    played.write([{**row, "topic": odd[n % len(odd)]} for n, row in enumerate(ROWS)])
    ended = played.run(right)
    assert (ended.state, ended.error_message) == (EvaluationState.COMPLETED, None)
    slices = [s for s in played.store.evaluation_scores(ended.id) if s.slice_column]
    assert sum(s.rows for s in slices) == len(ROWS)


def test_the_rows_may_be_refused_in_part(played: PlayedEvaluations) -> None:
    played.write([*ROWS[:5], {"prompt": 7, "target": "x", "topic": "odd"}, *ROWS[6:]])
    ended = played.run(right)
    rows = pq.read_table(played.storage.root / (ended.scores_path or "")).to_pylist()
    assert (rows[5]["prompt"], rows[5]["target"], rows[5]["score.exact"]) == ("", "x", None)
    assert rows[5]["error"] is not None
    assert [row["prompt"] for row in rows if row["prompt"]] == [
        str(row["prompt"]) for n, row in enumerate(ROWS) if n != 5
    ]
    assert json.loads(rows[5]["slices"]) == {"topic": "odd"}
