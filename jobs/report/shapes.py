"""A report as JSON: the data behind the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobs.records import JobRecord
from jobs.records.evaluations import ComparisonRecord, EvaluationRecord
from jobs.report.data import Report, Results, Run
from jobs.report.other import Column, Other
from jobs.report.settings import shown_spec


def report_json(report: Report) -> dict[str, Any]:
    """Its shape is in docs/evaluations.md."""
    return {
        "series": report.name,
        "made_at": report.made_at.isoformat(),
        "pagemill": report.software,
        "evaluation": {**_evaluation(report.newest), "spec": shown_spec(report.newest.spec)},
        "alpha": report.alpha,
        "less_is_better": list(report.falling),
        "runs": [_run(run) for run in report.runs],
        "older_runs": report.older,
        "open_runs": report.open,
        "results": None if report.results is None else _results(report.results),
    }


def _results(results: Results) -> dict[str, Any]:
    run = results.run
    return {
        "evaluation": run.evaluation.id,
        "scores": [dataclasses.asdict(results.scores[n]) for n in results.scorers],
        "comparisons": [
            {**dataclasses.asdict(comparison), "role": _role(column, comparison, results.other)}
            for column in results.columns
            for comparison in column.comparisons.values()
        ],
        "slices": [
            {
                **dataclasses.asdict(change.now),
                "before": None if change.before is None else change.before.value,
                "difference": change.difference,
            }
            for changes in results.slices.values()
            for change in changes
        ],
        "missing": [dataclasses.asdict(reason) for reason in results.missing],
        "missing_note": results.file_note,
        "against": None if results.other is None else _other(results.other),
        "against_note": results.other_note,
        "job": None if run.job is None else _job(run.job),
        "judges": {name: _job(job) for name, job in run.judges.items()},
        "software": run.software,
        "devices": list(run.devices),
    }


def _role(column: Column, comparison: ComparisonRecord, other: Other | None) -> str | None:
    """None of what was computed for this report."""
    computed = other is not None and column.comparisons is other.comparisons
    return None if computed else str(comparison.role)


def _other(other: Other) -> dict[str, Any]:
    return {
        "evaluation": other.run.evaluation.id,
        "word": other.word,
        "rows": None if other.rows is None else dataclasses.asdict(other.rows),
        "rows_note": other.rows_note,
        "settings": [dataclasses.asdict(setting) for setting in other.settings],
    }


def _run(run: Run) -> dict[str, Any]:
    scores = {name: dataclasses.asdict(score) for name, score in run.scores.items()}
    return {**_evaluation(run.evaluation), "changed": list(run.changed), "scores": scores}


def _evaluation(record: EvaluationRecord) -> dict[str, Any]:
    """All but the specification, which may be long, and the lease."""
    left_out = ("spec", "epoch", "attempts")
    fields = (f.name for f in dataclasses.fields(record) if f.name not in left_out)
    values = {name: _plain(getattr(record, name)) for name in fields}
    return {**values, "model": record.spec.get("model")}


def _job(job: JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "model": job.model,
        "seed": job.seed,
        "version": job.published_version,
        "counts": dataclasses.asdict(job.counts),
        "device_seconds": job.device.seconds,
        "gpu_seconds": job.device.gpu_seconds,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value
