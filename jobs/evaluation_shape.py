"""An evaluation as JSON: what commands print, and what is told to a URL (see docs/cli.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.job_shape import time_json
from jobs.records.evaluations import ComparisonRecord, EvaluationRecord, ScoreRecord
from jobs.shown_urls import shown_input, shown_webhook


def evaluation_json(
    evaluation: EvaluationRecord,
    scores: Sequence[ScoreRecord] = (),
    comparisons: Sequence[ComparisonRecord] = (),
) -> dict[str, Any]:
    """An evaluation, with what came out of it.

    The path of its file of scores is relative to the storage.
    """
    return {
        "id": evaluation.id,
        "name": evaluation.name,
        "state": evaluation.state.value,
        "verdict": None if evaluation.verdict is None else evaluation.verdict.value,
        "trigger": evaluation.trigger.value,
        "due_at": time_json(evaluation.due_at),
        "model": evaluation.spec.get("model"),
        "job_id": evaluation.job_id,
        "judge_jobs": dict(evaluation.judge_jobs),
        "dataset": {"hash": evaluation.dataset_hash, "rows": evaluation.dataset_rows},
        "scores": [score_json(score) for score in scores],
        "comparisons": [comparison_json(comparison) for comparison in comparisons],
        "findings": [dict(finding) for finding in evaluation.findings],
        "scores_path": evaluation.scores_path,
        "error": None
        if evaluation.error_message is None
        else {"code": evaluation.error_code, "message": evaluation.error_message},
        "blessed": evaluation.blessed_at is not None,
        **{
            name: time_json(getattr(evaluation, name))
            for name in ("created_at", "started_at", "finished_at", "blessed_at", "rescored_at")
        },
        "spec": shown_spec(evaluation.spec),
    }


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A specification that may be shown and sent: without the secrets in its URLs."""
    shown: dict[str, Any] = _without_webhooks(spec)
    if isinstance(inputs := shown.get("inputs"), list):
        shown["inputs"] = [shown_input(str(given)) for given in inputs]
    return shown


def _without_webhooks(value: Any) -> Any:
    """JSON whose `notify` hides its URLs: a specification has one, and so may each of its jobs."""
    if isinstance(value, list):
        return [_without_webhooks(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    shown = {name: _without_webhooks(inner) for name, inner in value.items()}
    told = shown.get("notify")
    if isinstance(told, str | list):
        hidden = [_shown(url) for url in ([told] if isinstance(told, str) else told)]
        shown["notify"] = hidden[0] if isinstance(told, str) else hidden
    return shown


def _shown(url: Any) -> Any:
    return shown_webhook(url) if isinstance(url, str) and "://" in url else url


def in_order(evaluation: EvaluationRecord, scores: Sequence[ScoreRecord]) -> list[ScoreRecord]:
    """As its specification has them."""
    scorers = evaluation.spec.get("scorers", [])
    names = [scorer.get("name", scorer.get("scorer")) for scorer in scorers]
    places = {name: number for number, name in enumerate(names)}
    return sorted(scores, key=lambda score: places.get(score.scorer, len(places)))


def score_json(score: ScoreRecord) -> dict[str, Any]:
    """What came out of a scorer; `slice` is null for all rows."""
    whole = not score.slice_column
    return {
        "scorer": score.scorer,
        "slice": None if whole else {"column": score.slice_column, "value": score.slice_value},
        "rows": score.rows,
        "missing": score.missing,
        "value": score.value,
        "low": score.low,
        "high": score.high,
        "interval": None if score.interval is None else score.interval.value,
    }


def comparison_json(comparison: ComparisonRecord) -> dict[str, Any]:
    """How a scorer differs from an earlier evaluation."""
    return {
        "with": comparison.role.value,
        "evaluation_id": comparison.other_id,
        "scorer": comparison.scorer,
        "pairs": comparison.pairs,
        "better": comparison.better,
        "worse": comparison.worse,
        "unpaired": comparison.unpaired,
        "difference": comparison.difference,
        "low": comparison.low,
        "high": comparison.high,
        "p_value": comparison.p_value,
        "method": None if comparison.method is None else comparison.method.value,
    }
