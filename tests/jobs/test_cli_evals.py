"""`pagemill eval`: what people see of evaluations, and how the commands end."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.cli import completion
from jobs.cli.supervising import WorkerLeft
from jobs.records import WorkerStatus
from jobs.records.evaluations import EvaluationState
from jobs.states import JobState
from tests.support.command_line import CommandLine
from tests.support.evaluations import claimed
from tests.support.played_evaluation import (
    ROWS,
    PlayedEvaluations,
    right,
    right_but,
    worker,
)
from tests.support.played_job import MODEL
from tests.support.receiver import closed_port, receiving

FEW_WRONG, MANY_WRONG = right_but(1, 2), right_but(*range(1, 17))
PATIENCE = 60.0


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


def run(cli: CommandLine, *more: str, expect: int = 0) -> tuple[str, str]:
    rows = str(cli.home / "questions.jsonl")
    model = ("--model", MODEL, "--no-worker", "--scorer", "exact", "--slice", "topic")
    return cli("eval", "run", rows, *model, *more, expect=expect)


def test_run_shows_what_came_out(cli: CommandLine, played: PlayedEvaluations) -> None:
    with worker(cli, FEW_WRONG):
        out, err = run(cli)
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["scorer", "slice", "value", "95%", "interval", "rows", "missing"]
    assert lines[1][:2] == ["exact", "0.9500"]
    assert lines[2][:2] == ["topic=even", "0.9500"]
    assert lines[-1] == ["verdict:", "ungated"]
    assert "40 rows in 1 file" in err
    (found,) = played.store.list_evaluations("questions")  # by the name of the file
    assert f"pagemill eval scores {found.id}" in err


def test_run_ends_by_the_gate(cli: CommandLine, played: PlayedEvaluations) -> None:
    gate = ("--gate", "exact:drop<=0.1,p<0.05", "--name", "nightly")
    with worker(cli, FEW_WRONG):
        run(cli, *gate)
    (first,) = played.store.list_evaluations("nightly")
    cli("eval", "bless", first.id[:14])
    with worker(cli, MANY_WRONG):
        out, _ = run(cli, *gate, "--json", expect=10)
    shape = json.loads(out)
    assert (shape["verdict"], shape["comparisons"][0]["worse"]) == ("regressed", 14)
    with worker(cli, lambda row: None if row == 3 else right(row)):
        out, _ = run(cli, *gate, expect=11)
    assert "1 of 40 rows has no score" in out
    with worker(cli, lambda row: None if row == 3 else right(row)):
        run(cli, *gate, "--allow-missing", "2.5%")


def test_a_job_that_fails_is_no_regression(cli: CommandLine, played: PlayedEvaluations) -> None:
    found = played.add()
    played.drive()
    job_id = played.store.evaluation(found.id).job_id or ""
    played.store.fail_job(job_id, "model_unavailable", "there is no such model")
    out, err = cli("eval", "wait", found.id, expect=12)
    assert out == "verdict: failed\n"
    assert "there is no such model [job_failed]" in err
    cli("eval", "gate", found.id, expect=12)


@pytest.mark.parametrize(("reason", "code"), [("it ran out of memory", 12), (None, 130)])
def test_a_worker_that_leaves_is_no_regression(
    cli: CommandLine,
    played: PlayedEvaluations,
    monkeypatch: pytest.MonkeyPatch,
    reason: str | None,
    code: int,
) -> None:
    def leave(*_: Any) -> None:
        raise WorkerLeft(1 if reason else 130, reason)

    monkeypatch.setattr("jobs.cli.run.answer", leave)
    _, err = run(cli, "--worker", expect=code)
    (found,) = played.store.list_evaluations()
    assert found.state is EvaluationState.ANSWERING
    assert f"evaluation {found.id} goes on" in err
    with worker(cli, right):
        cli("eval", "wait", found.id)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--scorer", "exakt"), "did you mean exact"),
        (("--target", "answer"), "no row of .* has a column 'answer'"),
        (("--gate", "f1>=1"), "'f1', which is no scorer"),
        (("--name", "not so good"), "--name is 'not so good'"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_queued(
    cli: CommandLine, played: PlayedEvaluations, given: tuple[str, ...], said: str
) -> None:
    code = 65 if "--target" in given else 64
    _, err = run(cli, *given, expect=code)
    assert re.search(said, err)
    assert played.store.list_evaluations() == []
    assert played.store.list_jobs() == []


def test_show_and_list(cli: CommandLine, played: PlayedEvaluations) -> None:
    assert "no evaluations" in cli("eval", "list")[1]
    first, second = played.run(FEW_WRONG), played.run(MANY_WRONG, "other")
    played.store.bless(first.id)
    out, _ = cli("eval", "list")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [second.id, first.id]
    assert out.splitlines()[2].endswith("baseline")
    assert "exact 0.950" in out
    assert [e["id"] for e in cli.json("eval", "list", "other")] == [second.id]
    assert cli.json("eval", "list", "--state", "failed") == []
    out, _ = cli("eval", "show", first.id)
    for said in (first.id, first.job_id or "", first.dataset_hash or "", "verdict: ungated"):
        assert said in out
    shape = cli.json("eval", "show", first.id)
    assert (shape["blessed"], shape["scores"][0]["value"], shape["error"]) == (True, 0.95, None)
    cli("eval", "show", "eval_nowhere", expect=66)


def test_scores_of_each_row(cli: CommandLine, played: PlayedEvaluations, tmp_path: Path) -> None:
    played.scorers = [{"scorer": "exact"}, {"scorer": "chrf"}]
    ended = played.run(lambda row: None if row == 5 else FEW_WRONG(row))
    out, _ = cli("eval", "scores", ended.id)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["score.exact"] for row in rows[:4]] == [1.0, 0.0, 0.0, 1.0]
    for ending in ("parquet", "csv"):
        cli("eval", "scores", ended.id, "-o", str(tmp_path / f"s.{ending}"))
    table = pq.read_table(tmp_path / "s.parquet")
    assert table.num_rows == 40
    assert "counts.chrf" not in table.schema.names
    with open(tmp_path / "s.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert (found[0]["answer"], found[0]["error"]) == ("1", "")
    assert (found[5]["answer"], found[5]["error"]) == ("", "nan_logits")
    open_one = played.add()
    cli("eval", "scores", open_one.id, expect=75)


def test_compare_shows_the_rows_that_changed(cli: CommandLine, played: PlayedEvaluations) -> None:
    first, second = played.run(right_but(1, 5)), played.run(right_but(5, 6, 7))
    shape = cli.json("eval", "compare", first.id, second.id)
    assert (shape["before"], shape["after"]) == (first.id, second.id)
    (scorer,) = shape["scorers"]
    assert (scorer["pairs"], scorer["better"], scorer["worse"]) == (40, 1, 2)
    changed = [(row["row_index"], row["after"]["score"]) for row in scorer["changed"]]
    assert changed == [(6, 0), (7, 0), (1, 1)]
    assert scorer["changed"][0]["before"] == {"score": 1, "answer": "7"}
    out, _ = cli("eval", "compare", first.id, second.id, "--limit", "1")
    assert "row 6  1 -> 0" in out
    assert "row 7" not in out
    assert "What is 6 + 1?" in out
    played.scorers = [{"scorer": "f1"}]
    third = played.run(right)
    _, err = cli("eval", "compare", first.id, third.id, expect=64)
    assert "no scorer of the same name" in err


def test_gate_tells_by_its_exit_code(cli: CommandLine, played: PlayedEvaluations) -> None:
    played.gate = {"rules": ["exact>=0.9"]}
    passed, regressed = played.run(FEW_WRONG), played.run(MANY_WRONG)
    out, _ = cli("eval", "gate", passed.id)
    assert out.endswith("verdict: passed\n")
    out, _ = cli("eval", "gate", regressed.id, "--json", expect=10)
    assert json.loads(out)["findings"][0]["passed"] is False
    open_one = played.add()
    _, err = cli("eval", "gate", open_one.id, expect=75)
    assert f"pagemill eval wait {open_one.id}" in err
    played.store.cancel_evaluation(open_one.id)
    out, _ = cli("eval", "gate", open_one.id, expect=12)
    assert out == "verdict: none, it is cancelled\n"


def test_cancel_ends_its_job(cli: CommandLine, played: PlayedEvaluations) -> None:
    found = played.add()
    played.drive()
    for _ in range(2):
        _, err = cli("eval", "cancel", found.id)
        assert "cancelled" in err
    job = played.store.job(played.store.evaluation(found.id).job_id or "")
    assert job.state is JobState.CANCELLED
    assert played.store.evaluation(found.id).state is EvaluationState.CANCELLED


def test_wait_gives_up_in_time(cli: CommandLine, played: PlayedEvaluations) -> None:
    found = played.add()
    _, err = cli("eval", "wait", found.id, "--timeout", "0.3", expect=124)
    assert "has not ended within 0.3 s" in err
    # What could be done without a worker was.
    assert played.store.evaluation(found.id).state is EvaluationState.ANSWERING
    with worker(cli, right):
        out, _ = cli("eval", "wait", found.id, "--json")
    assert json.loads(out)["state"] == "completed"


def test_wait_tells_what_keeps_the_workers_busy(
    cli: CommandLine, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.why_it_waits.PATIENCE_SECONDS", 0.0)
    long = cli.submit({"prompt": "a"})
    played.store.register_worker("host:1:a", MODEL, 1, "0.1.0", WorkerStatus("ready"))
    assert played.store.claim_chunk("host:1:a", MODEL) is not None
    found = played.add()
    _, err = cli("eval", "wait", found.id, "--timeout", "0.3", expect=124)
    job_id = played.store.evaluation(found.id).job_id
    assert err.count(f"job {job_id} waits for a free slot: 1 worker is busy with {long}; ") == 1


def test_the_id_of_something_else_is_told(cli: CommandLine, played: PlayedEvaluations) -> None:
    evaluation, job_id = played.add().id, cli.submit({"prompt": "a"})
    for command in ("status", "wait", "results", "cancel", "events"):
        _, err = cli(command, evaluation, expect=66)
        assert f"{evaluation} is no id of jobs, and begins as those of evaluations do" in err
        assert f"`pagemill eval show {evaluation}` shows that" in err
    for command in ("show", "wait", "scores", "cancel"):
        _, err = cli("eval", command, job_id, expect=66)
        assert f"{job_id} is no id of evaluations, and begins as those of jobs do" in err
        assert f"`pagemill status {job_id}` shows that" in err
    # Each of them works on what it is for.
    cli("eval", "show", evaluation[:14])
    cli("status", job_id[:14])


def test_delete_takes_the_scores_along(cli: CommandLine, played: PlayedEvaluations) -> None:
    ended = played.run(right)
    folder = cli.storage.root / "evaluations" / ended.id
    assert folder.is_dir()
    open_one = played.add()
    cli("eval", "delete", ended.id, open_one.id, expect=75)
    assert folder.is_dir()
    out, _ = cli("eval", "delete", ended.id, "--json")
    assert json.loads(out) == [{"id": ended.id}]
    assert not folder.exists()
    assert played.store.job(ended.job_id or "").published_version == 1  # jobs are kept
    cli("eval", "show", ended.id, expect=66)


def test_ids_and_names_are_completed(cli: CommandLine, played: PlayedEvaluations) -> None:
    found = played.add("nightly")
    assert completion.evaluation_ids(found.id[:10]) == [(found.id, "pending nightly")]
    assert completion.evaluation_names("ni") == [("nightly", "a series of evaluations")]
    assert completion.evaluation_names("x") == []


def test_a_specification_can_be_a_file(cli: CommandLine, played: PlayedEvaluations) -> None:
    shape: dict[str, Any] = played.spec()
    path = cli.home / "spec.json"
    path.write_text(json.dumps(shape))
    with worker(cli, right):
        out, _ = cli("eval", "run", "--spec", str(path), "--no-worker", "--json")
    assert json.loads(out)["spec"]["slices"] == ["topic"]
    assert len(ROWS) == json.loads(out)["dataset"]["rows"]


def test_gc_removes_those_whose_retention_is_over(
    cli: CommandLine, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, blessed = played.run(right), played.run(right)
    played.store.bless(blessed.id)
    monkeypatch.setenv("PAGEMILL_RETENTION", "0.001s")
    out, err = cli("gc", "--dry-run")
    assert f"{old.id}  completed" in out
    assert blessed.id not in out
    _, err = cli("gc")
    assert "2 jobs and 1 evaluation are deleted" in err
    assert [e.id for e in played.store.list_evaluations()] == [blessed.id]
    assert not (cli.storage.root / "evaluations" / old.id).exists()
    assert (cli.storage.root / "evaluations" / blessed.id).exists()


def test_the_end_is_told_to_its_urls_though_nobody_else_lives(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    with receiving() as receiver:
        with worker(cli, right):
            _, err = run(cli, "--notify", receiver.url)
        (request,) = receiver.requests
        assert request.json["event"] == "evaluation.completed"
        assert "notification" not in err
        found = played.add(spec={"notify": [receiver.url]})
        cli("eval", "cancel", found.id)
        assert receiver.requests[1].json["subject"] == found.id
        assert {told["state"] for told in cli.json("notifications")} == {"delivered"}


def test_a_url_that_does_not_take_it_does_not_fail_the_command(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    with closed_port() as url:
        ended = played.run(spec={"notify": [f"{url}/topsecret"]})
        _, err = cli("eval", "wait", ended.id)
    assert "has not taken the notification dlv_" in err
    assert f"connection refused; `pagemill notifications {ended.id}` shows" in err
    assert "topsecret" not in err


def test_wait_says_why_it_has_not_begun(
    cli: CommandLine, played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.evaluating.PATIENCE_SECONDS", 0.0)
    found = played.add()
    claimed(played.store, found.id)
    _, err = cli("eval", "wait", found.id, "--timeout", "0.1", expect=124)
    assert "has not begun: another process reads its rows; if that died" in err
    assert "schedule" not in err


def test_show_tells_what_is_asked(cli: CommandLine, played: PlayedEvaluations) -> None:
    played.gate = {"rules": ["exact>=0.9", "exact:drop<=0.02"], "missing": 0.025}
    template = "Question:\n{{ question }}\n" + "An example follows. " * 20
    submit = {"temperature": 0, "max_tokens": 16, "system": "Be brief.", "template": template}
    out, _ = cli("eval", "show", played.add(spec={"submit": submit, "seed": 7}).id)
    (options,) = [line for line in out.splitlines() if line.startswith("options")]
    assert 'temperature=0, max_tokens=16, system="Be brief."' in options
    assert 'template="Question: {{ question }} An example' in options
    assert options.endswith('…", seed=7')
    assert len(options) < 200
    gate = "exact>=0.9, exact:drop<=0.02 against baseline; 2.5% of the rows may be missing"
    assert f"gate        {gate}" in out.splitlines()


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (MANY_WRONG, "its verdict is regressed, 1 rule of its gate is broken"),
        (
            lambda row: None if row == 3 else MANY_WRONG(row),
            "its verdict is incomplete, 2 rules of its gate are broken",
        ),
        (right, None),
    ],
)
def test_bless_warns_of_one_that_has_not_passed(
    cli: CommandLine, played: PlayedEvaluations, says: Callable[[int], str | None], said: str | None
) -> None:
    played.gate = {"rules": ["exact>=0.9"]}
    ended = played.run(says)
    _, err = cli("eval", "bless", ended.id)
    assert f"evaluation {ended.id} is the baseline of nightly" in err
    assert (f"Warning: {said}" in err) if said else ("Warning" not in err)
    assert "Warning" not in cli("eval", "bless", ended.id, "--remove")[1]


def test_rows_that_miss_a_score_are_named(cli: CommandLine, played: PlayedEvaluations) -> None:
    played.gate = {"rules": []}
    rows = [{**row, "custom_id": f"q{n}"} if n == 3 else row for n, row in enumerate(ROWS)]
    played.write([{**row, "target": None} if n == 9 else row for n, row in enumerate(rows)])
    ended = played.run(lambda row: None if row in (3, 20, 30) else right(row))
    out, _ = cli("eval", "show", ended.id)
    lines = [line.strip() for line in out.splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("FAILED  missing<=0"))
    assert lines[first + 1].startswith("row 3 (q3): ")
    assert lines[first + 2].startswith("row 9: ")
    assert lines[first + 3].startswith("row 20: ")
    assert lines[first + 4] == (
        f"and 1 more: `pagemill eval scores {ended.id}` shows all; --allow-missing lets some be "
        "missing"
    )
    (cli.storage.root / (ended.scores_path or "")).unlink()
    out, _ = cli("eval", "show", ended.id)
    assert "FAILED  missing<=0" in out
    assert "shows all" not in out


def test_rescore_scores_what_was_answered_since(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    played.gate = {"rules": ["exact>=0.9"]}
    played.scorers = [{"name": "exact", "scorer": "exact"}]
    ended = played.run(lambda row: None if row == 3 else FEW_WRONG(row))
    cli("eval", "gate", ended.id, expect=11)
    cli("retry", ended.job_id or "")
    _, err = cli("eval", "show", ended.id)
    assert f"job {ended.job_id} was retried since; `pagemill eval rescore {ended.id}`" in err
    _, err = cli("eval", "rescore", ended.id, "--timeout", "0", expect=124)
    assert "have not ended within 0 s; they go on" in err
    with worker(cli, FEW_WRONG):
        out, _ = cli("eval", "rescore", ended.id[:14])
    assert out.splitlines()[-1] == "verdict: passed"
    out, err = cli("eval", "show", ended.id)
    assert re.search(r"^scored again +20\d\d-", out, re.MULTILINE)
    assert "retried since" not in err
    shape = json.loads(cli("eval", "rescore", ended.id, "--json")[0])
    assert (shape["verdict"], shape["scores"][0]["value"]) == ("passed", 0.95)
    assert shape["rescored_at"] > shape["finished_at"]
    open_one = played.add()
    _, err = cli("eval", "rescore", open_one.id, expect=75)
    assert f"pagemill eval wait {open_one.id}" in err
    assert "scored again" in cli("report", ended.id, "-o", "-")[0]


def test_a_baseline_that_lacks_what_the_gate_compares_is_warned_of(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    old, rows = played.run(right), str(played.rows)
    cli("eval", "bless", old.id)
    asks = ("--model", MODEL, "--scorer", "exact", "--scorer", "f1", "--gate", "f1:drop<=0.1")
    warning = f"Warning: {old.id}, the baseline of nightly, has no scores of f1"
    _, err = cli("schedule", "add", "nightly", rows, *asks, "--cron", "0 2 * * *")
    assert warning in err
    with worker(cli, right):
        out, err = cli("eval", "run", rows, *asks, "--name", "nightly", "--no-worker", expect=11)
    assert warning in err
    assert "FAILED  f1:drop<=0.1" in out
    assert "the baseline evaluation has no scores of it" in out
    assert warning in cli("eval", "bless", old.id)[1]  # by what its schedule asks
    new = played.store.list_evaluations("nightly")[0]
    assert "has no scores of" not in cli("eval", "bless", new.id)[1]
    with worker(cli, right):
        cli("eval", "run", rows, *asks, "--name", "nightly", "--no-worker")


def test_what_is_compared_with_once_a_blessing_is_gone_is_told(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    first, second, third = (played.run(right) for _ in range(3))
    for found in (first, second):
        cli("eval", "bless", found.id)
    _, err = cli("eval", "delete", second.id, third.id)
    assert f"the baseline of nightly is {first.id}" in err
    _, err = cli("eval", "bless", first.id, "--remove")
    assert "nightly has no baseline any more" in err


def test_one_that_failed_for_its_job_says_how_it_is_scored(
    cli: CommandLine, played: PlayedEvaluations
) -> None:
    found = played.add()
    played.drive()
    job_id = played.store.evaluation(found.id).job_id or ""
    cli("cancel", job_id)
    cli("eval", "wait", found.id, expect=12)
    assert "rescore" not in cli("eval", "show", found.id)[1]
    cli("retry", job_id)
    assert f"`pagemill eval rescore {found.id}`" in cli("eval", "show", found.id)[1]
    with worker(cli, right):
        out, _ = cli("eval", "rescore", found.id)
    assert out.endswith("verdict: ungated\n")
    assert played.store.evaluation(found.id).state is EvaluationState.COMPLETED
