"""What type checkers see of `jobs` and `engine`; checked by mypy --strict, and never run.

Each line with an `ignore` must be an error: one that is none is reported as unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import assert_type

import jobs
from engine import Engine, EngineConfig, FinishReason, Request, RequestOutput, SamplingParams
from jobs import (
    Job,
    JobsError,
    JobState,
    JobStatus,
    Results,
    RowFailure,
    Settings,
    list_jobs,
    run,
    submit,
)


def a_notebook(rows: Iterator[dict[str, str]], settings: Settings) -> None:
    job = submit(rows, model="m", max_tokens=4, stop=["a"], deadline=timedelta(hours=8))
    assert_type(job, Job)
    assert_type(submit(Path("a.jsonl"), model=Path("m"), settings=settings, kind="score"), Job)
    assert_type(run("a.jsonl", model="m", progress=False, num_blocks=64, limit=3), Job)
    submit("a.jsonl")  # type: ignore[call-arg]
    submit("a.jsonl", model="m", max_token=4)  # type: ignore[call-arg]
    submit("a.jsonl", model="m", num_blocks=64)  # type: ignore[call-arg]
    submit("a.jsonl", model="m", max_tokens="4")  # type: ignore[arg-type]
    run("a.jsonl", model="m", kind="guess")  # type: ignore[arg-type]
    assert_type(job.status(), JobStatus)
    assert_type(job.wait(timeout=1.5), JobStatus)
    assert_type(job.status().state, JobState)
    assert_type(job.status().rows.completed, int)
    assert_type(job.status().finished_at, datetime | None)
    assert_type(job.results(), Results)
    assert_type(job.results(partial=True).write("a.parquet"), int)
    assert_type(job.errors(), Iterator[RowFailure])
    assert_type(list_jobs("queued"), Sequence[Job])
    assert_type(Job.list(), Sequence[Job])
    job.states()  # type: ignore[attr-defined]
    jobs.submitted()  # type: ignore[attr-defined]
    try:
        job.retry()
    except JobsError as error:
        assert_type(error.exit_code, int)


def an_engine(ids: tuple[int, ...]) -> None:
    engine = Engine(EngineConfig(model="m", block_size=16))
    requests = [Request("1", ids, SamplingParams(max_tokens=4))]
    assert_type(engine.generate(requests), Iterator[RequestOutput])
    for output in engine.generate(requests):
        assert_type(output.finish_reason, FinishReason)
    SamplingParams(max_token=4)  # type: ignore[call-arg]
