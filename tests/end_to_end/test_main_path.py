"""From a file of prompts to published answers, through the command line and real processes."""

from __future__ import annotations

import json
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.child import child
from tests.support.deployment import BACKENDS, wait_for

ENGINE = ("--num-blocks", "256", "--max-model-len", "256", "--max-num-seqs", "8", "--threads", "1")

on_each_backend = pytest.mark.parametrize("deployment", BACKENDS, indirect=True)
# A database and a broker meet in the wake-ups alone: for all else, each of them once.
OPPOSITES = (BACKENDS[0], BACKENDS[-1])
on_opposites = pytest.mark.parametrize("deployment", OPPOSITES, indirect=True)

# A row at a time and long answers: a job that lasts long enough to be disturbed.
SLOW = (*ENGINE, "--max-num-seqs", "1")


def questions(count, **more):
    return [
        {"custom_id": f"q{i}", "messages": [{"role": "user", "content": f"Question {i}?"}], **more}
        for i in range(count)
    ]


@on_each_backend
def test_run_answers_every_row_and_keeps_the_order(deployment, tiny_model):
    rows = questions(40, max_tokens=8, channel="mail")
    rows[3] = {"prompt": "raw text", "temperature": 0.8, "seed": 11, "max_tokens": 5}
    rows[7] = {"custom_id": "broken", "prompt": 5}
    rows[9] = {"custom_id": "long", "prompt": "x" * 3000}
    path = deployment.home / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    done = deployment.cli(
        "run", str(path), "--model", str(tiny_model), "--chunk-rows", "7", *ENGINE, expect=1
    )
    assert "38 of 40 rows answered" in done.stderr
    job = json.loads(deployment.cli("list", "--json").stdout)[0]["id"]

    table = pq.read_table(deployment.home / "storage" / job / "v1")
    found = table.to_pylist()
    assert [r["row_index"] for r in found] == list(range(40))
    assert [r["custom_id"] for r in found] == [r.get("custom_id") for r in rows]
    assert found[0]["input"] == '{"channel":"mail"}'
    assert {r["row_index"]: r["error"]["code"] for r in found if r["error"]} == {
        7: "wrong_type",
        9: "prompt_too_long",
    }
    assert found[9]["error"]["line"] == 10
    assert found[9]["prompt_tokens"] == 0  # of a prompt that was never computed
    assert found[3]["seed"] == 11
    assert found[3]["completion_tokens"] <= 5
    answered = [r for r in found if r["error"] is None]
    assert all(r["finish_reason"] in ("stop", "length") and r["text"] for r in answered)
    assert all(r["seed"] is not None for r in answered)
    assert sum(r["cached_tokens"] for r in answered) > 0

    status = deployment.status(job)
    assert status["state"] == "completed"
    assert status["rows"] == {
        "total": 40, "completed": 38, "failed": 2, "cancelled": 0, "expired": 0,
    }  # fmt: skip
    assert status["tokens"]["prompt"] == sum(r["prompt_tokens"] for r in answered)
    assert deployment.results(job)[3]["text"] == found[3]["text"]
    errors = deployment.cli("errors", job).stdout
    assert "prompt_too_long" in errors
    assert "wrong_type" in errors


def test_a_parquet_file_with_messages(deployment, tiny_model):
    table = pa.table(
        {
            "messages": [[{"role": "user", "content": f"hi {i}"}] for i in range(20)],
            "text": [f"mine {i}" for i in range(20)],
            "score": pa.array(range(20), pa.int16()),
        }
    )
    path = deployment.home / "in.parquet"
    pq.write_table(table, path)
    answers = deployment.home / "answers.parquet"
    deployment.cli(
        "run", str(path), "--model", str(tiny_model), "--max-tokens", "4", *ENGINE,
        "-o", str(answers),
    )  # fmt: skip
    found = pq.read_table(answers)
    assert found["input.text"].to_pylist() == table["text"].to_pylist()
    assert found.schema.field("score").type == pa.int16()
    assert found["completion_tokens"].to_pylist() != []


def test_stdin_and_a_system_prompt(deployment, tiny_model):
    done = deployment.cli(
        "run", "-", "--model", str(tiny_model), "--system", "Be brief.", "--max-tokens", "3",
        *ENGINE, "-o", "-", "--format", "jsonl", stdin=b'{"prompt": "a"}\n{"prompt": "b"}\n',
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2
    assert all(r["prompt_tokens"] > len("Be brief.") for r in found)


@on_each_backend
def test_two_workers_share_a_job(deployment, tiny_model):
    """It goes on when both are there: one alone might be done before the other has started."""
    job = deployment.submit(
        questions(120, max_tokens=60, ignore_eos=True), tiny_model, "--chunk-rows", "8"
    )
    deployment.cli("pause", job)
    options = (*ENGINE, "--exit-when-done", job, "--concurrency", "1")
    with (
        deployment.worker(tiny_model, *options) as one,
        deployment.worker(tiny_model, *options) as other,
    ):
        for worker in (one, other):
            wait_for("a worker", lambda worker=worker: "ready for chunks" in worker.logged())
        deployment.cli("resume", job)
        deployment.cli("wait", job)
        assert (one.wait(), other.wait()) == (0, 0)
        assert "done" in one.logged()
        assert "done" in other.logged()
    assert [r["row_index"] for r in deployment.results(job)] == list(range(120))


@on_opposites
def test_cancel_publishes_what_was_answered_and_retry_answers_the_rest(deployment, tiny_model):
    job = deployment.submit(
        questions(30, max_tokens=200, ignore_eos=True), tiny_model, "--chunk-rows", "8"
    )
    with deployment.worker(tiny_model, *SLOW, "--concurrency", "2") as worker:
        wait_for("some answers", lambda: deployment.completed(job) >= 4)
        partial = deployment.results(job, "--partial")
        deployment.cli("cancel", job)
        deployment.cli("cancel", job)  # once more changes nothing
        done = deployment.cli("wait", job, expect=2)
        assert "cancelled" in done.stderr
        first = deployment.results(job)
        assert [r["row_index"] for r in first] == list(range(30))
        answered = {r["row_index"]: r["text"] for r in first if r["error"] is None}
        assert {r["row_index"] for r in partial} <= answered.keys()
        assert 0 < len(answered) < 30
        assert {r["error"]["code"] for r in first if r["error"]} == {"cancelled"}

        deployment.cli("retry", job)
        deployment.cli("wait", job)
        second = deployment.results(job)
        assert [r["row_index"] for r in second] == list(range(30))
        assert all(r["error"] is None for r in second)
        assert {r["row_index"]: r["text"] for r in second}.items() >= answered.items()
        assert deployment.results(job, "--version", "1") == first  # a version never changes
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


@on_each_backend
def test_a_job_without_any_worker_can_be_cancelled(deployment, tiny_model):
    job = deployment.submit(questions(10), tiny_model)
    deployment.cli("cancel", job)
    assert deployment.status(job)["state"] == "cancelled"
    assert {r["error"]["code"] for r in deployment.results(job)} == {"cancelled"}


@pytest.mark.parametrize(
    ("deployment", "number"),
    [
        *((backend, signal.SIGTERM) for backend in OPPOSITES),
        (OPPOSITES[0], signal.SIGINT),
        (OPPOSITES[0], signal.SIGHUP),
    ],
    indirect=["deployment"],
)
def test_the_first_signal_drains(deployment, tiny_model, number):
    job = deployment.submit(
        questions(30, max_tokens=200, ignore_eos=True), tiny_model, "--chunk-rows", "10"
    )
    with deployment.worker(tiny_model, *SLOW, "--concurrency", "1") as worker:
        wait_for("some answers", lambda: deployment.completed(job) >= 4)
        worker.signal(number)
        assert worker.wait() == 0, worker.logged()
        assert "draining" in worker.logged()
    status = deployment.status(job)
    assert status["state"] == "in_progress"
    assert status["rows"]["completed"] in (10, 20)  # whole chunks


@on_opposites
def test_the_second_signal_hands_back_and_nothing_is_computed_twice(deployment, tiny_model):
    job = deployment.submit(
        questions(30, max_tokens=200, ignore_eos=True), tiny_model, "--chunk-rows", "30"
    )
    with deployment.worker(tiny_model, *SLOW) as worker:
        wait_for("some answers", lambda: deployment.completed(job) >= 8)
        worker.signal(signal.SIGTERM)
        wait_for("the drain", lambda: "draining" in worker.logged())
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 0, worker.logged()
        assert "handed back" in worker.logged()
    assert deployment.status(job)["state"] == "in_progress"
    with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        assert worker.wait() == 0
        assert "finished rows adopted" in worker.logged()
    found = deployment.results(job)
    assert [r["row_index"] for r in found] == list(range(30))
    assert all(r["completion_tokens"] == 200 for r in found)


def test_run_starts_a_killed_worker_again(deployment, tiny_model):
    import subprocess
    import sys

    import psutil

    path = deployment.home / "prompts.jsonl"
    path.write_text(
        "\n".join(json.dumps(r) for r in questions(40, max_tokens=200, ignore_eos=True))
    )
    with child(
        [sys.executable, "-P", "-m", "jobs", "run", str(path), "--model", str(tiny_model), *SLOW],
        env=deployment.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip

        def worker():
            return next(
                (c for c in psutil.Process(run.pid).children() if "worker" in c.cmdline()), None
            )

        jobs = wait_for("the job", lambda: json.loads(deployment.cli("list", "--json").stdout))
        wait_for("some answers", lambda: deployment.completed(jobs[0]["id"]) >= 4)
        worker().kill()
        stdout, stderr = run.communicate(timeout=120)
        assert run.returncode == 0, stderr
    (job,) = json.loads(deployment.cli("list", "--json").stdout)
    assert job["rows"]["completed"] == 40
    assert job["id"] in stdout + stderr


def test_run_says_why_a_model_cannot_be_served(deployment, tmp_path):
    path = deployment.home / "prompts.jsonl"
    path.write_text('{"prompt": "x"}\n')
    missing = tmp_path / "no-such-model"
    missing.mkdir()
    (missing / "config.json").write_text("{}")
    done = deployment.cli("run", str(path), "--model", str(missing), expect=None)
    assert done.returncode not in (0, 2)
    assert str(missing) in done.stderr
    assert "Traceback" not in done.stderr
    (job,) = json.loads(deployment.cli("list", "--json").stdout)
    assert job["state"] == "failed"


def test_an_unknown_architecture_names_the_supported_ones(deployment, tiny_model, tmp_path):
    import shutil

    model = tmp_path / "odd"
    shutil.copytree(tiny_model, model)
    config = json.loads((model / "config.json").read_text())
    config["architectures"] = ["OddForCausalLM"]
    (model / "config.json").write_text(json.dumps(config))
    path = deployment.home / "prompts.jsonl"
    path.write_text('{"prompt": "x"}\n')
    done = deployment.cli("run", str(path), "--model", str(model), expect=None)
    assert done.returncode != 0
    assert "OddForCausalLM" in done.stderr
    assert "LlamaForCausalLM" in done.stderr
