"""`run` from Python, with workers that are played by a few lines of code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobs import JobState, UsageError, WorkerFailed, list_jobs, run
from tests.support.command_line import CommandLine
from tests.support.played_job import MODEL

ROWS: list[dict[str, Any]] = [{"prompt": f"row {n}"} for n in range(6)]


def worker_that(code: str) -> Callable[..., list[str]]:
    return lambda *arguments: [sys.executable, "-c", code, *arguments]


def test_a_run_whose_worker_leaves_says_its_last_words(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; print('Error: there is no such model'); sys.exit(3)"
    monkeypatch.setattr("jobs.cli.run.worker_command", worker_that(code))
    with pytest.raises(WorkerFailed, match="there is no such model"):
        run(ROWS, model=MODEL)
    (job,) = list_jobs()
    status = job.status()
    assert status.error is not None
    assert status.error.code == "model_unavailable"


def test_a_run_in_a_thread_goes_without_signals(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.run.worker_command", worker_that("import sys; sys.exit(3)"))
    with ThreadPoolExecutor() as pool:
        failure = pool.submit(run, ROWS, model=MODEL).exception()
    assert isinstance(failure, WorkerFailed)


def test_options_of_the_worker_reach_it(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    code = f"import json, sys; json.dump(sys.argv[1:], open({str(told)!r}, 'w')); sys.exit(3)"
    monkeypatch.setattr("jobs.cli.run.worker_command", worker_that(code))
    with pytest.raises(WorkerFailed):
        run(ROWS, model=MODEL, num_blocks=64, swap_space=0, overlap=False, max_tokens=4)
    (job,) = list_jobs()
    assert json.loads(told.read_text()) == [
        MODEL, "--exit-when-done", job.id, "--watch-parent",
        "--num-blocks", "64", "--no-overlap", "--swap-space", "0.0",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="there is no option 'num_block'; did you mean num_blocks"):
        run(ROWS, model=MODEL, num_block=64)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="num_blocks is 'all'; it must be a whole number"):
        run(ROWS, model=MODEL, num_blocks="all")  # type: ignore[arg-type]


def test_a_run_that_is_interrupted_leaves_the_job(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    monkeypatch.setattr("jobs.cli.run.worker_command", worker_that(code))
    with pytest.raises(KeyboardInterrupt):
        run(ROWS, model=MODEL)
    (job,) = list_jobs()
    assert job.status().state is JobState.QUEUED
