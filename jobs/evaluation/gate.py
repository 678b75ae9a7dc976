"""The gate: what an evaluation's rules say of its scores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.evaluation.rules import Bound, Change, GateSpec
from jobs.records.evaluations import ComparisonRecord, Method, Role, ScoreRecord, Verdict

# What rounding may do to a difference that is exactly what is allowed.
_ROUNDING = 1e-12

_WITHOUT = "the {} evaluation has no scores of it: bless one that has, once there is one"

_METHODS = {Method.MCNEMAR: "McNemar's exact test", Method.BOOTSTRAP: "paired bootstrap"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a rule.

    Attributes:
        passed: None where there was nothing to compare with.
    """

    rule: str
    passed: bool | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """As SQL and `--json` have it."""
        return {"rule": self.rule, "passed": self.passed, "sentence": self.sentence}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a gate says.

    Attributes:
        findings: first of missing rows, then of the rules in their order.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]


def judge(
    gate: GateSpec | None,
    scores: Sequence[ScoreRecord],
    comparisons: Sequence[ComparisonRecord] = (),
    earlier: Sequence[ScoreRecord] = (),
    lost: str | None = None,
) -> Judgement:
    """What the gate says of scores.

    Rows that are missing come first: an evaluation that lacks more of them than it may is
    incomplete, whatever its rules say, and so is one with a rule about something of which no row
    has a score. Even without a gate, so is one with a scorer that could score no row. A rule about
    changes says nothing as long as there is no earlier evaluation; where there is one whose scores
    are lost, or that has none of its scorer, nobody knows whether it is broken, and that is
    incomplete.

    Args:
        scores: of all rows, and of the slices.
        comparisons: with the evaluation that the gate compares with, if there is one.
        earlier: the scores of that one.
        lost: why there are no comparisons with that one, although it is there.
    """
    overall = {s.scorer: s for s in scores if not s.slice_column}
    if gate is None:
        nothing = tuple(_nothing(s) for s in overall.values() if s.rows == 0)
        return Judgement(Verdict.INCOMPLETE if nothing else Verdict.UNGATED, nothing)
    lacking = [f for s in overall.values() if (f := _lacking(gate, s)) is not None]
    found: list[tuple[Finding, bool]] = []
    for rule in gate.rules:
        if isinstance(rule, Bound):
            found.append(_bound(rule, scores))
        else:
            changes = {c.scorer: c for c in comparisons if c.role is gate.against}
            before = {s.scorer: s.value for s in earlier if not s.slice_column}
            now = overall.get(rule.scorer)
            found.append(
                _change(
                    rule,
                    gate.against,
                    changes.get(rule.scorer),
                    None if now is None else now.value,
                    before.get(rule.scorer),
                    lost or (_WITHOUT.format(gate.against) if before else None),
                )
            )
    findings = [finding for finding, _ in found]
    if lacking or not all(judged for _, judged in found):
        verdict = Verdict.INCOMPLETE
    elif any(finding.passed is False for finding in findings):
        verdict = Verdict.REGRESSED
    elif findings and all(finding.passed is None for finding in findings):
        verdict = Verdict.UNGATED
    else:
        verdict = Verdict.PASSED
    return Judgement(verdict, (*lacking, *findings))


def scorers_without(gate: GateSpec | None, known: Collection[str]) -> list[str]:
    """The scorers whose changes the gate's rules are about, but for those that are known."""
    changes = (rule for rule in (gate.rules if gate else ()) if not isinstance(rule, Bound))
    return list(dict.fromkeys(rule.scorer for rule in changes if rule.scorer not in known))


def _nothing(score: ScoreRecord) -> Finding:
    return Finding("rows>0", False, f"{score.scorer}: none of {score.missing:,} rows has a score")


def _lacking(gate: GateSpec, score: ScoreRecord) -> Finding | None:
    rows = score.rows + score.missing
    allowed = gate.allowed_missing(rows)
    if score.missing <= allowed:
        return None
    have = "has" if score.missing == 1 else "have"
    return Finding(
        f"missing<={gate.missing:g}",
        False,
        f"{score.scorer}: {score.missing:,} of {rows:,} rows {have} no score; {allowed:,} may be "
        "missing",
    )


def _bound(rule: Bound, scores: Sequence[ScoreRecord]) -> tuple[Finding, bool]:
    """The finding, and whether there was something to judge."""
    part = rule.slice or ("", "")
    about = rule.scorer if rule.slice is None else f"{rule.scorer} of {part[0]} = {part[1]!r}"
    for score in scores:
        if (score.scorer, score.slice_column, score.slice_value) != (rule.scorer, *part):
            continue
        if score.value is None:
            break
        passed = rule.holds(score.value)
        verb = "is" if passed else "is not"
        sentence = (
            f"{about} is {_value(score.value)}{_interval(score.low, score.high)} over "
            f"{score.rows:,} rows: that {verb} {rule.compare} {rule.limit:g}"
        )
        return Finding(rule.text, passed, sentence), True
    return Finding(rule.text, False, f"{about} has no value: no row has a score"), False


def _change(
    rule: Change,
    against: Role | None,
    change: ComparisonRecord | None,
    now: float | None,
    before: float | None,
    lost: str | None,
) -> tuple[Finding, bool]:
    if change is None and lost is not None:
        return Finding(rule.text, False, f"{rule.scorer}: {lost}"), False
    if change is None:
        sentence = f"{rule.scorer}: there is no {against or 'earlier'} evaluation to compare with"
        return Finding(rule.text, None, f"{sentence} yet"), True
    if change.difference is None or change.p_value is None:
        sentence = (
            f"{rule.scorer}: no row has a score both now and in the {change.role} evaluation; the "
            "data sets share no rows"
        )
        return Finding(rule.text, False, sentence), False
    too_far = rule.direction * change.difference > rule.limit + _ROUNDING
    significant = rule.level is None or change.p_value < rule.level
    passed = not (too_far and significant)
    return Finding(
        rule.text, passed, _sentence(rule, change, now, before, too_far, significant)
    ), True


def _sentence(
    rule: Change,
    change: ComparisonRecord,
    now: float | None,
    before: float | None,
    too_far: bool,
    significant: bool,
) -> str:
    difference = change.difference or 0.0
    values = "" if now is None or before is None else f" from {_value(before)} to {_value(now)}"
    moved = "rose" if difference > 0 else "dropped" if difference < 0 else "did not change"
    by = f" by {_value(abs(difference))}" if difference else ""
    method = "" if change.method is None else f" by {_METHODS[change.method]}"
    text = (
        f"{rule.scorer} {moved}{by}{values} since the {change.role} evaluation"
        f" (over {change.pairs:,} pairs: {change.better:,} better, {change.worse:,} worse; "
        f"difference {difference:+.4g}{_interval(change.low, change.high)}, "
        f"p {_p_value(change.p_value or 0.0)}{method})"
    )
    direction = "rise" if rule.direction > 0 else "drop"
    if not too_far:
        return f"{text}: a {direction} of {rule.limit:g} is allowed"
    if rule.level is None:
        return f"{text}: only a {direction} of {rule.limit:g} is allowed"
    less = "" if significant else "not "
    return f"{text}: a {direction} of over {rule.limit:g}, and {less}significant at {rule.level:g}"


def _value(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"


def _p_value(value: float) -> str:
    return f"= {value:.2g}" if value >= 1e-4 else "< 0.0001"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{_value(low)}, {_value(high)}]"
