"""Evaluations by real processes: a worker and nothing else, schedules, and how commands end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.database import Database
from jobs.ids import new_id
from jobs.records.evaluations import CatchUp, EvaluationRecord, Overlap
from jobs.store import Store
from jobs.store.schedules import NewSchedule
from tests.support.child import child
from tests.support.deployment import BACKENDS, Deployment, wait_for

ENGINE = ("--num-blocks", "96", "--max-model-len", "256", "--max-num-seqs", "8", "--threads", "1")
ROWS = 16

on_opposites = pytest.mark.parametrize("deployment", [BACKENDS[0], BACKENDS[-1]], indirect=True)


ASKED = [{"prompt": f"Question {n}:", "max_tokens": 6, "ignore_eos": True} for n in range(ROWS)]


def data_set(deployment: Deployment, *targets: str) -> Path:
    rows = deployment.home / "questions.jsonl"
    made = [
        {**row, "target": target, "topic": "ab"[n % 2]}
        for n, (row, target) in enumerate(zip(ASKED, targets, strict=True))
    ]
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in made))
    return rows


def greedy(deployment: Deployment, model: Path) -> list[str]:
    """What the model says when it takes the likeliest tokens; a worker must be there."""
    job = deployment.submit(ASKED, model, "--temperature", "0")
    deployment.cli("wait", job)
    return [row["text"] for row in deployment.results(job)]


def spec(rows: Path, model: Path, temperature: float) -> dict[str, Any]:
    return {
        "inputs": [str(rows)],
        "model": str(model),
        "scorers": [{"scorer": "exact"}],
        "slices": ["topic"],
        "submit": {"temperature": temperature, "chunk_rows": 8},
        "gate": {"rules": ["exact:drop<=0.1,p<0.05"]},
    }


def put_schedule(store: Store, spec: dict[str, Any]) -> None:
    """A schedule whose time has come, in the place of another; it comes again in a year."""
    store.add_schedule(
        NewSchedule(
            id=new_id("sched"), name="nightly", cron="0 0 1 1 *", timezone="UTC", spec=spec,
            dataset_hash=None, catch_up=CatchUp.LATEST, overlap=Overlap.SKIP,
            next_time=lambda now: now,
        ),
        replace=True,
    )  # fmt: skip


def next_evaluation(database: Database, spec: dict[str, Any]) -> EvaluationRecord:
    """What the schedule makes of it, once: driven to its end by whoever is there."""
    store = Store(database)
    before = {evaluation.id for evaluation in store.list_evaluations("nightly")}
    put_schedule(store, spec)

    def ticked() -> bool:
        return len(store.list_evaluations("nightly")) > len(before)

    wait_for("a tick", ticked)
    (found,) = [e for e in store.list_evaluations("nightly") if e.id not in before]

    def ended() -> EvaluationRecord | None:
        now = store.evaluation(found.id)
        return now if now.state.terminal else None

    last: EvaluationRecord = wait_for("the end of the evaluation", ended)
    return last


@on_opposites
def test_a_worker_alone_takes_a_schedule_to_its_gate(
    deployment: Deployment, tiny_model: Path
) -> None:
    database = Database(deployment.settings.database_url)
    try:
        with deployment.worker(tiny_model, *ENGINE):
            rows = data_set(deployment, *greedy(deployment, tiny_model))
            first = next_evaluation(database, spec(rows, tiny_model, 0.0))
            assert (first.verdict, first.error_message) == ("ungated", None)
            assert Store(database).evaluation_scores(first.id)[0].value == pytest.approx(1, abs=0.1)
            deployment.cli("eval", "bless", first.id)
            second = next_evaluation(database, spec(rows, tiny_model, 3.0))
        done = deployment.cli("eval", "gate", second.id, "--json", expect=10)
        told = json.loads(done.stdout)
        assert told["verdict"] == "regressed"
        assert "exact dropped" in told["findings"][0]["sentence"]
        shown = json.loads(deployment.cli("eval", "show", second.id, "--json").stdout)
        assert shown["comparisons"][0]["pairs"] == ROWS
        assert shown["trigger"] == "cron"
    finally:
        database.close()


def test_run_starts_a_worker_and_ends_by_the_gate(deployment: Deployment, tiny_model: Path) -> None:
    rows = data_set(deployment, *("x" * ROWS))
    run = ("eval", "run", str(rows), "--model", str(tiny_model), "--scorer", "exact", *ENGINE)
    done = deployment.cli(*run, "--temperature", "0", "--gate", "exact>=0")
    assert done.stdout.endswith("verdict: passed\n")
    assert "answered by a worker" in done.stderr
    # Rows that are too long for the model have no answer.
    lines = rows.read_text().splitlines()
    lines[3] = json.dumps({"prompt": "x" * 3000, "target": "x", "topic": "a"})
    rows.write_text("\n".join(lines))
    done = deployment.cli(*run, "--temperature", "0", "--gate", "exact>=0", expect=11)
    assert "1 of 16 rows has no score" in done.stdout


def test_a_model_that_cannot_be_served_is_no_regression(deployment: Deployment) -> None:
    rows = deployment.home / "questions.jsonl"
    rows.write_text(json.dumps({"prompt": "What is 1?", "target": "1"}))
    nowhere = deployment.home / "no-model"
    nowhere.mkdir()
    (nowhere / "config.json").write_text("{}")
    done = deployment.cli(
        "eval", "run", str(rows), "--model", str(nowhere), "--scorer", "exact", expect=12
    )
    assert "[job_failed]" in done.stderr
    (found,) = json.loads(deployment.cli("eval", "list", "--json").stdout)
    assert (found["state"], found["verdict"]) == ("failed", "failed")


def test_ctrl_c_leaves_it_resumable(deployment: Deployment, tiny_model: Path) -> None:
    rows = data_set(deployment, *("x" * ROWS))
    command = [sys.executable, "-P", "-m", "jobs", "eval", "run", str(rows), "--no-worker"]
    command += ["--model", str(tiny_model), "--scorer", "exact", "--temperature", "0"]
    with child(
        command, env=deployment.env, cwd=deployment.home, stderr=subprocess.PIPE, text=True
    ) as running:
        look = ("eval", "list", "--json")

        def answering() -> list[Any]:
            found = json.loads(deployment._look(*look))
            return [e for e in found if e["state"] == "answering"]

        (found,) = wait_for("the evaluation's job", answering)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr is not None
        assert f"pagemill eval cancel {found['id']}" in running.stderr.read()
    with deployment.worker(tiny_model, *ENGINE):
        done = deployment.cli("eval", "wait", found["id"])
    assert "exact" in done.stdout
