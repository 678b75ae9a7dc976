"""`evaluate` and `Evaluation` in Python: what they do and say is what the command line does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs import (
    Evaluation,
    EvaluationNotFound,
    EvaluationState,
    InputError,
    Job,
    StateConflict,
    UsageError,
    Verdict,
    WaitTimedOut,
    WorkerFailed,
    evaluate,
)
from jobs.cli.evaluation_options import EvaluationOptions
from jobs.cli.supervising import WorkerLeft
from jobs.evaluation_shape import comparison_json, score_json
from jobs.records.evaluations import Role
from tests.support.command_line import CommandLine
from tests.support.played_evaluation import PlayedEvaluations, right, right_but, worker
from tests.support.played_job import MODEL

FEW_WRONG, MANY_WRONG = right_but(1, 2), right_but(*range(1, 17))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.setattr("jobs.cli.evaluating.POLL_SECONDS", 0.02)
    monkeypatch.setattr("jobs.cli.watching.POLL_SECONDS", 0.02)
    return CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)


@pytest.fixture
def played(cli: CommandLine) -> Iterator[PlayedEvaluations]:
    with cli.store() as store:
        rows = cli.home / "questions.jsonl"
        played = PlayedEvaluations(store, cli.storage, cli.settings, rows)
        played.write()
        yield played


def ask(played: PlayedEvaluations, **more: Any) -> Evaluation:
    given = {"model": MODEL, "scorers": ["exact"], "slices": ["topic"], "worker": False}
    return evaluate(played.rows, **{**given, **more})  # type: ignore[arg-type]


def test_from_rows_to_scores(cli: CommandLine, played: PlayedEvaluations) -> None:
    with worker(cli, FEW_WRONG):
        first = ask(played, gate="exact:drop<=0.1,p<0.05", name="nightly")
    assert (first.state, first.verdict) == (EvaluationState.COMPLETED, Verdict.UNGATED)
    exact = first.metrics["exact"]
    assert (exact.value, exact.rows, exact.missing) == (0.95, 40, 0)
    assert (exact.low or 0) < 0.95 < (exact.high or 0)
    assert [(s.slice_column, s.slice_value) for s in first.slices] == [
        ("topic", "even"), ("topic", "odd"),
    ]  # fmt: skip
    assert first.comparisons == ()
    assert first.bless().blessed_at is not None
    with worker(cli, MANY_WRONG):
        second = ask(played, gate=["exact:drop<=0.1,p<0.05"], name="nightly")
    assert second.verdict is Verdict.REGRESSED
    assert {c.other_id for c in second.comparisons} == {first.id}
    (finding,) = second.status().findings
    assert (finding.rule, finding.passed) == ("exact:drop<=0.1,p<0.05", False)
    assert Evaluation.list("nightly") == [second, first]
    assert Evaluation.list(state="failed") == []
    assert first.bless(remove=True).blessed_at is None


def test_the_score_of_each_row(cli: CommandLine, played: PlayedEvaluations, tmp_path: Path) -> None:
    found = played.run(FEW_WRONG, spec={"scorers": [{"scorer": "exact"}, {"scorer": "chrf"}]})
    scores = Evaluation.get(found.id[:14]).scores()
    assert [row["row_index"] for row in scores if row["score.exact"] == 0] == [1, 2]
    table = scores.arrow(["row_index", "score.exact"])
    assert (table.num_rows, table.column_names) == (40, ["row_index", "score.exact"])
    assert scores.pandas()["answer"].tolist()[:3] == ["1", "wrong", "wrong"]
    assert scores.polars()["score.exact"].sum() == 38
    assert "counts.chrf" not in scores.schema.names
    assert Path(scores.path).exists()
    assert scores.write(tmp_path / "s.csv") == 40
    printed = cli("eval", "scores", found.id, "--format", "csv")[0]
    assert (tmp_path / "s.csv").read_text() == printed
    with pytest.raises(UsageError, match=r"there is no column 'score\.f1'"):
        scores.arrow(["score.f1"])
    with pytest.raises(UsageError, match="no form of OpenAI's"):
        scores.write(tmp_path / "s", format="openai")
    with pytest.raises(UsageError, match="would overwrite the evaluation's data set"):
        scores.write(played.rows)
    _, err = cli("eval", "scores", found.id, "-o", str(played.rows), expect=64)
    assert "would overwrite the evaluation's data set" in err


def test_a_status_is_what_the_command_line_prints(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    played.scorers = [{"scorer": "f1"}, {"scorer": "exact"}]
    played.gate = {"rules": ["exact>=0.9", "f1:drop<=0.1"]}
    played.store.bless(played.run(FEW_WRONG).id)
    for id in (played.run(MANY_WRONG).id, played.add().id):
        status, shape = Evaluation(id).status(), cli.json("eval", "show", id)
        scores = [*status.metrics.values(), *status.slices]
        assert sorted(map(score_json, scores), key=json.dumps) == sorted(
            shape["scores"], key=json.dumps
        )
        assert [comparison_json(c) for c in status.comparisons] == shape["comparisons"]
        assert [finding.to_json() for finding in status.findings] == shape["findings"]
        for name in ("id", "name", "state", "verdict", "trigger", "model", "job_id", "spec"):
            assert getattr(status, name) == shape[name], name
        dataset = {"hash": status.dataset_hash, "rows": status.dataset_rows}
        assert dataset == shape["dataset"]
        assert status.created_at.isoformat() == shape["created_at"]
    assert list(Evaluation.list()[1].metrics) == ["f1", "exact"]  # in the order of the scorers


def test_what_is_asked_is_what_the_command_line_asks(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    template = cli.home / "t.jinja"
    template.write_text("Say: {{ prompt }}")
    same: dict[str, Any] = {
        "model": MODEL, "target": "target", "notify": ["https://example.com/x"], "seed": 7,
        "template": template, "stop": ["\n"], "temperature": 0.0, "priority": 3,
    }  # fmt: skip
    printed = EvaluationOptions(
        inputs=[str(played.rows)], scorer=["numeric:tolerance=0.5", "exact"], slice=["topic"],
        gate=["exact>=0.1"], against=Role.PREVIOUS, allow_missing="2%", deadline="28800.000s",
        **same,
    )  # fmt: skip
    asked = ask(
        played, scorers=[{"scorer": "numeric", "tolerance": 0.5}, "exact"], gate="exact>=0.1",
        against="previous", allow_missing=0.02, deadline=timedelta(hours=8), wait=False, **same,
    )  # fmt: skip
    assert played.store.evaluation(asked.id).spec == printed.spec().to_json()


def test_a_specification_may_be_given_and_what_is_beside_it_wins(
    cli: CommandLine, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cli.home)
    spec = {**played.spec(), "inputs": ["questions.jsonl"], "submit": {"max_tokens": 4}}
    (cli.home / "spec.json").write_text(json.dumps(spec))
    for given in (spec, "spec.json", cli.home / "spec.json"):
        asked = evaluate(spec=given, seed=3, max_tokens=5, temperature=0.5, wait=False)  # type: ignore[arg-type]
        found = played.store.evaluation(asked.id).spec
        assert (found["inputs"], found["seed"]) == ([str(played.rows)], 3)
        assert found["submit"] == {"max_tokens": 5, "temperature": 0.5}
        assert found["slices"] == ["topic"]


def test_one_that_is_not_waited_for_goes_on_by_itself(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    found = ask(played, wait=False)
    assert (found.state, found.verdict, dict(found.metrics)) == ("pending", None, {})
    with pytest.raises(StateConflict, match="is pending"):
        found.scores()
    with pytest.raises(WaitTimedOut, match=r"has not ended within 0\.1 s"):
        found.wait(timeout=0.1)
    assert found.state == "answering"  # what could be done without a worker was
    with worker(cli, right):
        status = found.wait(progress=False)
    assert (status.state, status.ended, status.metrics["exact"].value) == ("completed", True, 1.0)
    assert str(status) == f"{found.id} of questions completed, ungated, exact 1.0000"


def test_it_is_cancelled_and_deleted(cli: CommandLine, played: PlayedEvaluations) -> None:
    found = ask(played, wait=False)
    assert {found: 1}[Evaluation.get(found.id)] == 1
    with pytest.raises(StateConflict):
        found.delete()
    with pytest.raises(StateConflict, match="only a completed one"):
        found.bless()
    for _ in range(2):
        assert found.cancel().state is EvaluationState.CANCELLED
    found.delete()
    with pytest.raises(EvaluationNotFound):
        found.status()


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"scorers": ["exakt"]}, UsageError, "scorers is 'exakt'.* did you mean exact"),
        ({"scorers": []}, UsageError, "scorers is missing"),
        ({"model": None}, UsageError, "model is missing"),
        ({"target": "nothing"}, InputError, "no row of .* has a column 'nothing'"),
        ({"gate": "f1>=1"}, UsageError, "'f1', which is no scorer"),
        ({"allow_missing": "many"}, UsageError, "allow_missing is 'many'"),
        ({"allow_missing": -1}, UsageError, "gate.missing"),
        ({"name": "not so good"}, UsageError, "--name is 'not so good'"),
        ({"max_token": 4}, UsageError, "no option 'max_token'; did you mean max_tokens"),
        ({"slice": ["topic"]}, UsageError, "no option 'slice'; did you mean slices"),
        ({"scorer": "exact"}, UsageError, "no option 'scorer'; did you mean scorers"),
        ({"colour": 1}, UsageError, "no option 'colour'; known are .*scorers, name, target.* gate"),
        ({"name": 5}, UsageError, "--name is 5"),
        ({"scorers": 3}, UsageError, "scorers is a int; it must be a list"),
        ({"spec": [1]}, UsageError, "spec is a list; it must be a dict, or a path"),
        ({"model": 5}, UsageError, "model is 5"),
        ({"num_blocks": "all"}, UsageError, "num_blocks is 'all'"),
        ({"temperature": "hot"}, UsageError, "temperature"),
        ({"template": Path("/nowhere.jinja")}, UsageError, "/nowhere.jinja cannot be read"),
        ({"spec": "/nowhere.json"}, UsageError, "/nowhere.json cannot be read"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_queued(
    cli: CommandLine, played: PlayedEvaluations, given: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        ask(played, **given)
    assert played.store.list_evaluations() == []


def test_rows_have_to_be_in_a_file(cli: CommandLine, played: PlayedEvaluations) -> None:
    with pytest.raises(UsageError, match="write them to a file first"):
        evaluate([{"prompt": "a"}], model=MODEL, scorers="exact")  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("reason", "raised"), [("it ran out of memory", WorkerFailed), (None, KeyboardInterrupt)]
)
def test_a_worker_that_leaves_is_no_regression(
    cli: CommandLine,
    played: PlayedEvaluations,
    monkeypatch: pytest.MonkeyPatch,
    reason: str | None,
    raised: type[BaseException],
) -> None:
    def leave(*_: Any) -> None:
        raise WorkerLeft(1 if reason else 130, reason)

    monkeypatch.setattr("jobs.cli.run.answer", leave)
    with pytest.raises(raised):
        ask(played, worker=True)
    (found,) = Evaluation.list()
    assert found.state is EvaluationState.ANSWERING
    with worker(cli, right):
        assert found.wait().verdict is Verdict.UNGATED


def test_states_that_there_are_not_are_named(cli: CommandLine, played: PlayedEvaluations) -> None:
    with pytest.raises(UsageError, match="no state 'done'; it is one of pending, answering"):
        Evaluation.list(state=["failed", "done"])
    with pytest.raises(UsageError, match="limit is 0"):
        Evaluation.list(limit=0)
    with pytest.raises(EvaluationNotFound):
        Evaluation.get("eval_nowhere")


def test_what_was_answered_since_is_scored(cli: CommandLine, played: PlayedEvaluations) -> None:
    found = Evaluation(played.run(lambda row: None if row == 3 else right(row)).id)
    Job(found.status().job_id or "").retry()
    with pytest.raises(WaitTimedOut, match=r"the jobs of .* have not ended within 0 s"):
        found.rescore(timeout=0, progress=False)
    assert found.metrics["exact"].missing == 1
    with worker(cli, right):
        status = found.rescore()
    assert (status.metrics["exact"].rows, status.metrics["exact"].missing) == (40, 0)
    assert status.rescored_at is not None
