"""What type checkers see of `jobs` and `engine`; checked by mypy --strict, and never run.

Each line with an `ignore` must be an error: one that is none is reported as unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import assert_type

import jobs
from engine import Engine, EngineConfig, FinishReason, Request, RequestOutput, SamplingParams
from jobs import (
    ComparisonRecord,
    Evaluation,
    EvaluationState,
    EvaluationStatus,
    Job,
    JobsError,
    JobState,
    JobStatus,
    Results,
    RowFailure,
    ScoreRecord,
    Scores,
    Settings,
    Verdict,
    evaluate,
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


def a_night(settings: Settings) -> None:
    found = evaluate(
        [Path("a.jsonl"), "b.jsonl"], model=Path("m"), scorers=["exact", {"scorer": "f1"}],
        slices="topic", gate=["exact>=0.8"], against="previous", allow_missing=0.02, wait=False,
        settings=settings, max_tokens=4, num_blocks=64, deadline=timedelta(hours=8),
    )  # fmt: skip
    assert_type(found, Evaluation)
    assert_type(evaluate(spec={"version": 1}), Evaluation)
    evaluate("a.jsonl", model="m", scorers="exact", max_token=4)  # type: ignore[call-arg]
    evaluate("a.jsonl", model="m", scorers="exact", against="first")  # type: ignore[arg-type]
    evaluate([{"prompt": "a"}], model="m", scorers="exact")  # type: ignore[list-item]
    assert_type(Evaluation.get("eval_abcdefgh"), Evaluation)
    assert_type(Evaluation.list("nightly", "failed"), Sequence[Evaluation])
    assert_type(found.state, EvaluationState)
    assert_type(found.verdict, Verdict | None)
    assert_type(found.metrics, Mapping[str, ScoreRecord])
    assert_type(found.metrics["exact"].value, float | None)
    assert_type(found.slices, Sequence[ScoreRecord])
    assert_type(found.comparisons, Sequence[ComparisonRecord])
    assert_type(found.wait(timeout=1.5), EvaluationStatus)
    assert_type(found.rescore(), EvaluationStatus)
    assert_type(found.scores(), Scores)
    assert_type(found.scores().write("a.csv"), int)
    assert_type(found.bless(), EvaluationStatus)


def an_engine(ids: tuple[int, ...]) -> None:
    engine = Engine(EngineConfig(model="m", block_size=16))
    requests = [Request("1", ids, SamplingParams(max_tokens=4))]
    assert_type(engine.generate(requests), Iterator[RequestOutput])
    for output in engine.generate(requests):
        assert_type(output.finish_reason, FinishReason)
    SamplingParams(max_token=4)  # type: ignore[call-arg]
