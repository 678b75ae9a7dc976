"""`pagemill run`: a real worker, and every way in which it can end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command_line import CommandLine
from tests.support.tiny_model import build_tiny_model

PROGRAM = [sys.executable, "-P", "-m", "jobs"]
ENGINE = ["--device", "cpu", "--num-blocks", "64", "--threads", "1"]
PATIENCE = 120.0
MANY = 160  # rows: some seconds of work are left when it is seen that a few are answered


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name, seconds in {
        "LEASE": "3",
        "SWEEP": "0.5",
        "SPOOL": "0.2",
        "HEARTBEAT": "0.2",
    }.items():
        monkeypatch.setenv(f"PAGEMILL_{name}_SECONDS", seconds)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cli = CommandLine(tmp_path / "home", monkeypatch)
    cli("db", "upgrade")
    return cli


def rows_file(folder: Path, rows: int, **options: Any) -> str:
    path = folder / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"Row {i}", **options}) + "\n" for i in range(rows))
    )
    return str(path)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`pagemill run …` beside the test; its worker is gone at the end too."""
    with subprocess.Popen(
        [*PROGRAM, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def job_of(cli: CommandLine) -> dict[str, Any] | None:
    found = cli.json("list")
    return found[0] if found else None


def rows_done(cli: CommandLine) -> int:
    job = job_of(cli)
    return sum(cli.json("status", job["id"])["rows"].values()) - job["rows"]["total"] if job else 0


def worker_of(process: subprocess.Popen[str]) -> psutil.Process | None:
    for child in psutil.Process(process.pid).children():
        if "worker" in child.cmdline():
            return child
    return None


def test_run_answers_and_shows_the_first_answers(
    cli: CommandLine, model: str, tmp_path: Path
) -> None:
    rows = rows_file(tmp_path, 7)
    target = tmp_path / "answers.parquet"

    done = subprocess.run(
        [*PROGRAM, "run", rows, "--model", model, "--max-tokens", "4", "-o", str(target), *ENGINE],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    job = job_of(cli)
    assert job is not None
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["row", "0", "1", "2", "3", "4"]
    assert lines[-1] == f"output: {job['output']}"
    assert "7 of 7 rows answered" in done.stderr
    assert re.search(r"completed +7/7 rows answered", done.stderr)
    assert target.exists()
    assert len(cli("results", job["id"])[0].splitlines()) == 7


def test_run_again_with_the_same_key_shows_the_answers_that_are_there(
    cli: CommandLine, model: str, tmp_path: Path
) -> None:
    command = [*PROGRAM, "run", rows_file(tmp_path, 3), "--model", model, "--max-tokens", "4"]
    command += ["--idempotency-key", "k", *ENGINE]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE) for _ in range(2)
    )
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert second.stdout == first.stdout
    assert "answered by a worker" in first.stderr
    assert "already submitted" in second.stderr
    assert "answered by a worker" not in second.stderr
    assert len(cli.json("list")) == 1


def test_a_model_that_is_missing_ends_run_with_the_reason(cli: CommandLine, tmp_path: Path) -> None:
    empty = tmp_path / "empty-model"
    empty.mkdir()
    (empty / "config.json").write_text("{}")

    done = subprocess.run(
        [*PROGRAM, "run", rows_file(tmp_path, 1), "--model", str(empty), *ENGINE],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    job = job_of(cli)
    assert job is not None
    assert job["state"] == "failed"
    assert job["error"]["code"] == "model_unavailable"
    assert f"Error: {job['error']['message']}\n" in done.stderr
    assert str(empty) in job["error"]["message"]


def test_ctrl_c_drains_and_the_job_can_go_on(cli: CommandLine, model: str, tmp_path: Path) -> None:
    rows = rows_file(tmp_path, MANY, max_tokens=100, ignore_eos=True)

    with running(rows, "--model", model, "--chunk-rows", "2", *ENGINE) as process:
        until(lambda: rows_done(cli) > 0)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)

    job = job_of(cli)
    assert job is not None
    assert process.returncode == 130, said
    assert "finished first" in said
    assert f"--exit-when-done {job['id']}\n  pagemill wait {job['id']}\n" in said
    assert cli.json("status", job["id"])["chunks"]["running"] == 0
    assert 0 < job["rows"]["completed"] < MANY

    subprocess.run(
        [sys.executable, "-P", "-m", "worker", "--model", model, "--exit-when-done", job["id"],
         *ENGINE],
        check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    cli("wait", job["id"])


def test_a_second_ctrl_c_hands_back_at_once(cli: CommandLine, model: str, tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 8, max_tokens=1900, ignore_eos=True)

    with running(rows, "--model", model, *ENGINE, "--num-blocks", "2000") as process:
        until(lambda: (job := job_of(cli)) and job["state"] == "in_progress")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode in (130, 143), said
    assert "Handing the chunks back" in said
    job = job_of(cli)
    assert job is not None
    assert cli.json("status", job["id"])["chunks"] == {
        "total": 1,
        "left": 1,
        "running": 0,
        "done": 0,
    }


def test_a_killed_worker_is_started_again(cli: CommandLine, model: str, tmp_path: Path) -> None:
    rows = rows_file(tmp_path, MANY, max_tokens=100, ignore_eos=True)

    with running(rows, "--model", model, "--chunk-rows", "2", *ENGINE) as process:
        until(lambda: rows_done(cli) > 0)
        until(lambda: worker_of(process)).kill()
        _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, said
    assert "ended by SIGKILL and is started again" in said
    job = job_of(cli)
    assert job is not None
    assert job["rows"]["completed"] == MANY


def test_a_worker_does_not_outlive_a_killed_run(
    cli: CommandLine, model: str, tmp_path: Path
) -> None:
    rows = rows_file(tmp_path, 20, max_tokens=1000, ignore_eos=True)

    with running(rows, "--model", model, *ENGINE, "--num-blocks", "2000") as process:
        until(lambda: (job := job_of(cli)) and job["state"] == "in_progress")
        worker = worker_of(process)
        assert worker is not None
        process.kill()
        worker.wait(PATIENCE)
