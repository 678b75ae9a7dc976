"""What the page says in words: verdicts, marks, facts, and how numbers were found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from jobs.records import JobRecord
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationRecord,
    EvaluationState,
    Interval,
    Method,
    ScoreRecord,
    Verdict,
)
from jobs.report.data import Report, Results, Run
from jobs.report.numbers import decimal
from jobs.report.plots import Point, sample
from jobs.report.settings import shown_spec

FEW_ROWS = 30


@dataclass(frozen=True, slots=True)
class Banner:
    """The verdict, for everybody.

    Attributes:
        style: `good`, `bad` or `plain`.
    """

    word: str
    sign: str
    style: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Direction:
    """What a difference means; a style of `soft` where it is not significant."""

    word: str
    style: str


_VERDICTS = {
    Verdict.PASSED: Banner("passed", "✓", "good", "All rules of the gate hold."),
    Verdict.REGRESSED: Banner("regressed", "▼", "bad", "A rule of the gate is broken."),
    Verdict.INCOMPLETE: Banner(
        "incomplete", "◧", "bad", "More rows have no score than the gate allows."
    ),
    Verdict.FAILED: Banner(
        "failed", "✗", "bad", "The run could not be done; that says nothing of the answers."
    ),
    Verdict.UNGATED: Banner("no gate", "•", "plain", "Nothing was asked of the scores."),
}
_METHODS = {Method.MCNEMAR: "McNemar", Method.BOOTSTRAP: "bootstrap"}
_INTERVALS = {Interval.WILSON: "Wilson", Interval.BOOTSTRAP: "bootstrap"}
_MARKS = {Verdict.REGRESSED: "triangle", Verdict.INCOMPLETE: "square"}


def banner(report: Report) -> Banner:
    newest = report.newest
    if newest.state is EvaluationState.SKIPPED:
        return Banner("skipped", "\u2013", "plain", newest.error_message or "It was not run.")
    if newest.state is EvaluationState.CANCELLED:
        return Banner("cancelled", "\u2013", "plain", newest.error_message or "Somebody ended it.")
    verdict = newest.verdict
    if verdict is None:
        verdict = Verdict.FAILED if newest.state is EvaluationState.FAILED else Verdict.UNGATED
    found = _VERDICTS[verdict]
    if not newest.error_message:
        return found
    code = f" ({newest.error_code})" if newest.error_code else ""
    sentence = f"{found.sentence} {newest.error_message}{code}"
    return dataclasses.replace(found, sentence=sentence)


def finding_word(finding: Mapping[str, Any]) -> Banner:
    """What the gate says of a rule, in a word; a rule without anything to judge has none."""
    if finding.get("passed") is None:
        return Banner("not judged", "•", "soft", "")
    return Banner("held", "✓", "up", "") if finding["passed"] else Banner("broken", "✗", "down", "")


def sections(report: Report) -> list[tuple[str, str]]:
    if report.results is None:
        return []
    slices = [("slices", "Slices")] if report.results.slices else []
    return [
        ("scores", "Scores"), ("trend", "Over the runs"), *slices, ("rows", "Rows that changed"),
        ("missing", "Rows without a score"), ("settings", "Settings"), ("origin", "Origin"),
    ]  # fmt: skip


def direction(report: Report, comparison: ComparisonRecord, scorer: str) -> Direction:
    moved = comparison.difference or 0.0
    if moved == 0:
        return Direction("(the same)", "soft")
    if comparison.p_value is None or comparison.p_value >= report.alpha:
        return Direction("(not significant)", "soft")
    better = (moved > 0) != (scorer in report.falling)
    return Direction("▲ better", "up") if better else Direction("▼ worse", "down")


def method_name(method: Method | None) -> str:
    return "" if method is None else _METHODS[method]


def interval_name(interval: Interval) -> str:
    return _INTERVALS[interval]


def run_word(run: EvaluationRecord) -> str:
    """How a run ended, in a word."""
    if run.state is EvaluationState.COMPLETED and run.verdict is not None:
        return _VERDICTS[run.verdict].word
    return str(run.state)


def scale(score: ScoreRecord) -> tuple[float, float]:
    """From 0 to 1, or as far as it takes."""
    ends = [end for end in (score.value, score.low, score.high) if end is not None]
    return min([0.0, *ends]), max([1.0, *ends])


def points(runs: Sequence[Run], scorer: str) -> list[Point]:
    """A scorer's course. What changed counts from the run before that has scores."""
    made = []
    ends = [run.evaluation.finished_at or run.evaluation.created_at for run in runs]
    # Days tell runs apart, or else times of that day do.
    form = "%Y-%m-%d" if len({end.date() for end in ends}) > 1 else "%m-%d %H:%M"
    for run, ended in zip(runs, ends, strict=True):
        score = run.scores.get(scorer)
        value = None if score is None else score.value
        said = "no score" if value is None else f"{scorer} {decimal(value)}"
        if score is not None and score.low is not None and score.high is not None:
            said += f" ({decimal(score.low)} to {decimal(score.high)})"
        how = run_word(run.evaluation)
        made.append(
            Point(
                label=f"{ended:%Y-%m-%d %H:%M} {run.evaluation.id}: {how}, {said}",
                when=ended.strftime(form),
                value=value,
                low=None if score is None else score.low,
                high=None if score is None else score.high,
                mark=_mark(run.evaluation, value),
                ring=run.evaluation.blessed_at is not None,
                broken=" and ".join(run.changed),
            )
        )
    return made


def _mark(run: EvaluationRecord, value: float | None) -> str:
    if value is None:
        return "cross" if run.state is EvaluationState.FAILED else "dash"
    return _MARKS.get(run.verdict, "circle") if run.verdict is not None else "circle"


def legend() -> list[tuple[str, Markup]]:
    return [
        ("passed, or no gate", sample("circle")),
        ("regressed", sample("triangle")),
        ("incomplete", sample("square")),
        ("failed", sample("cross")),
        ("skipped, cancelled or without a score", sample("dash")),
        ("a baseline", sample("circle", ring=True)),
        ("data set or model changed", sample("break")),
        ("95% interval", sample("band")),
    ]


def facts(results: Results) -> list[tuple[str, str]]:
    """Where the numbers come from."""
    run, job = results.run.evaluation, results.run.job
    spec = shown_spec(run.spec)
    gone = "" if job is not None else " (it is gone)"
    found = [
        ("evaluation", run.id),
        ("started by", _started_by(run)),
        ("from, to", _span(run)),
        *(() if run.rescored_at is None else [("scored again", _moment(run.rescored_at))]),
        ("inputs", ", ".join(map(str, spec.get("inputs", ())))),
        ("data set", f"{run.dataset_hash} (SHA-256)" if run.dataset_hash else "unknown"),
        ("its rows", "unknown" if run.dataset_rows is None else f"{run.dataset_rows:,}"),
        ("model", str(spec.get("model"))),
        ("scorers", "; ".join(_scorer_texts(spec))),
        ("seed", str(spec.get("seed"))),
        ("answering job", f"{run.job_id}{gone}" if run.job_id else "none"),
    ]
    if job is not None:
        found += [("tokens", _tokens(job)), ("time of devices", _device_time(job))]
    for name, judge in results.run.judges.items():
        found.append((f"judge of {name}", f"{judge.id}, {judge.model}; {_tokens(judge)}"))
    return [
        *found,
        ("device", ", ".join(results.run.devices) or "no longer known"),
        ("pagemill", results.run.software or "no longer known"),
        ("file of scores", run.scores_path or "none"),
    ]


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _started_by(run: EvaluationRecord) -> str:
    due = "" if run.due_at is None else f", due {run.due_at:%Y-%m-%d %H:%M} UTC"
    return f"{run.trigger}{due}"


def _span(run: EvaluationRecord) -> str:
    start, end = run.started_at, run.finished_at
    if start is None or end is None:
        return "unknown"
    took = f"{(end - start).total_seconds():,.0f} s"
    return f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC ({took})"


def _scorer_texts(spec: Mapping[str, Any]) -> Iterator[str]:
    for scorer in spec.get("scorers", ()):
        options = ", ".join(f"{k}={v}" for k, v in scorer.get("options", {}).items())
        kind = scorer["scorer"] if scorer["scorer"] != scorer["name"] else ""
        inner = ", ".join(filter(None, (kind, options)))
        yield f"{scorer['name']} ({inner})" if inner else str(scorer["name"])


def _device_time(job: JobRecord) -> str:
    gpu = f", {job.device.gpu_seconds:,.1f} s of it of GPUs" if job.device.gpu_seconds else ""
    return f"{job.device.seconds:,.1f} s{gpu}"


def _tokens(job: JobRecord) -> str:
    c = job.counts
    return (
        f"{c.prompt_tokens:,} of prompts ({c.cached_tokens:,} from the prefix cache), "
        f"{c.completion_tokens:,} of answers"
    )
