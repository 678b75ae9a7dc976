"""Evaluations as tables and sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobs.cli.asked import asked_lines
from jobs.cli.console import keep_whole, note, one_line, say, show, squeezable, table
from jobs.cli.deployment import Deployment
from jobs.cli.lacking_rows import lacking_rows
from jobs.errors import JobNotFound
from jobs.evaluation_shape import evaluation_json, in_order, shown_spec
from jobs.records.evaluations import EvaluationState, Role

if TYPE_CHECKING:
    from rich.table import Table

    from jobs.records.evaluations import ComparisonRecord, EvaluationRecord, ScoreRecord


def whole_json(deployment: Deployment, evaluation: EvaluationRecord) -> dict[str, Any]:
    """An evaluation with all that came out."""
    store = deployment.store
    return evaluation_json(
        evaluation,
        store.evaluation_scores(evaluation.id),
        store.evaluation_comparisons(evaluation.id),
    )


def show_results(deployment: Deployment, evaluation: EvaluationRecord) -> None:
    """The scores, on stdout, and what the gate says of them."""
    store = deployment.store
    scores = store.evaluation_scores(evaluation.id)
    if scores:
        show(_scores(scores, store.evaluation_comparisons(evaluation.id)))
    for finding in evaluation.findings:
        mark = {True: "passed", False: "FAILED", None: "open"}[finding["passed"]]
        say(f"{mark}  {finding['rule']}  {one_line(finding['sentence'])}")
        for line in lacking_rows(deployment, evaluation, scores, finding):
            say(line)
    if evaluation.verdict is not None:
        say(f"verdict: {evaluation.verdict}")


def summary(evaluation: EvaluationRecord) -> str:
    """How it ended, in one sentence."""
    of_series = f"evaluation {evaluation.id} of {evaluation.name} {evaluation.state}"
    if evaluation.error_message:
        return f"{of_series}: {evaluation.error_message} [{evaluation.error_code}]"
    if evaluation.state is EvaluationState.COMPLETED and evaluation.dataset_rows is not None:
        return f"{of_series}: {evaluation.dataset_rows:,} rows"
    return of_series


def show_list(deployment: Deployment, evaluations: Sequence[EvaluationRecord]) -> None:
    """Evaluations, each with the value of its first scorer."""
    names = ("id", "name", "state", "verdict", "score", "created", "")
    shown = table(*names, right=("score",))
    for evaluation in evaluations:
        scores = deployment.store.evaluation_scores(evaluation.id)
        first = next((s for s in in_order(evaluation, scores) if not s.slice_column), None)
        value = "" if first is None or first.value is None else f"{first.scorer} {first.value:.3f}"
        shown.add_row(
            evaluation.id,
            squeezable(evaluation.name),
            evaluation.state.value,
            evaluation.verdict or "",
            value,
            evaluation.created_at.astimezone().strftime("%Y-%m-%d %H:%M"),
            "baseline" if evaluation.blessed_at is not None else "",
        )
    keep_whole(shown, "id", "state", "verdict", "score", "created")
    show(shown)


def show_details(deployment: Deployment, evaluation: EvaluationRecord) -> None:
    """All that there is to say about one, and its results."""
    spec = shown_spec(evaluation.spec)
    moments = (
        ("due", evaluation.due_at),
        ("created", evaluation.created_at),
        ("started", evaluation.started_at),
        ("finished", evaluation.finished_at),
        ("blessed", evaluation.blessed_at),
        ("scored again", evaluation.rescored_at),
    )
    lines = [
        ("evaluation", evaluation.id),
        ("name", evaluation.name),
        ("state", evaluation.state.value),
        ("model", spec.get("model")),
        ("inputs", ", ".join(spec.get("inputs", []))),
        *asked_lines(spec),
        ("rows", None if evaluation.dataset_rows is None else f"{evaluation.dataset_rows:,}"),
        ("data set", evaluation.dataset_hash),
        ("job", evaluation.job_id),
        *((f"judge {name}", job) for name, job in evaluation.judge_jobs.items()),
        ("scores", _path(deployment, evaluation)),
        *((n, m and m.astimezone().isoformat(" ", "seconds")) for n, m in moments),
        ("error", evaluation.error_message and _error(evaluation)),
    ]
    width = max(len(name) for name, value in lines if value)
    for name, value in lines:
        if value:
            say(f"{name:<{width}}  {one_line(str(value))}")
    show_results(deployment, evaluation)
    for job in _answered_since(deployment, evaluation):
        note(
            f"job {job} was retried since; `pagemill eval rescore {evaluation.id}` scores what it "
            "answers now"
        )


def _answered_since(deployment: Deployment, evaluation: EvaluationRecord) -> list[str]:
    """Its jobs whose rows were answered once more after they were scored."""
    scored = evaluation.rescored_at or evaluation.finished_at
    if evaluation.state not in (EvaluationState.COMPLETED, EvaluationState.FAILED) or not scored:
        return []
    found = []
    for job_id in (evaluation.job_id, *evaluation.judge_jobs.values()):
        with contextlib.suppress(JobNotFound):
            job = deployment.store.job(job_id or "")
            if job.version > 1 and (job.finished_at is None or job.finished_at > scored):
                found.append(job.id)
    return found


def note_summary(deployment: Deployment, evaluation: EvaluationRecord) -> None:
    """How it ended, on stderr, and where the score of each row is."""
    note(summary(evaluation))
    if evaluation.state is EvaluationState.COMPLETED:
        note(f"each row:  pagemill eval scores {evaluation.id} -o scores.parquet")


def _scores(scores: Sequence[ScoreRecord], comparisons: Sequence[ComparisonRecord]) -> Table:
    """A row a scorer, and below it one for each slice."""
    roles = [role for role in Role if any(c.role is role for c in comparisons)]
    against = {role: f"to {role}" for role in roles}
    numbers = ("value", "95% interval", "rows", "missing", *against.values())
    sliced = any(score.slice_column for score in scores)
    columns = ("scorer", *(("slice",) if sliced else ()), *numbers)
    shown = table(*columns, right=numbers)
    for score in scores:
        whole = not score.slice_column
        cells = [score.scorer if whole else ""]
        if sliced:
            cells.append("" if whole else one_line(f"{score.slice_column}={score.slice_value}"))
        cells += [
            "-" if score.value is None else f"{score.value:.4f}",
            "-" if score.low is None else f"[{score.low:.4f}, {score.high:.4f}]",
            f"{score.rows:,}",
            f"{score.missing:,}",
        ]
        for role in roles:
            found = [c for c in comparisons if c.role is role and c.scorer == score.scorer]
            cells.append(difference(found[0]) if whole and found else "")
        shown.add_row(*cells)
    return shown


def difference(comparison: ComparisonRecord) -> str:
    """`-0.3500 (p < 0.001)`."""
    if comparison.difference is None or comparison.p_value is None:
        return "no pairs"
    p = comparison.p_value
    return f"{comparison.difference:+.4f} (p {f'= {p:.3f}' if p >= 0.001 else '< 0.001'})"


def _path(deployment: Deployment, evaluation: EvaluationRecord) -> str | None:
    if evaluation.scores_path is None:
        return None
    return str(deployment.storage.root / evaluation.scores_path)


def _error(evaluation: EvaluationRecord) -> str:
    code = f" [{evaluation.error_code}]" if evaluation.error_code else ", it is tried again"
    return f"{evaluation.error_message}{code}"
