"""Verdicts of the gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.evaluation.gate import judge
from jobs.evaluation.rules import GateSpec
from jobs.records.evaluations import (
    ComparisonRecord,
    Interval,
    Method,
    Role,
    ScoreRecord,
    Verdict,
)

pytestmark = pytest.mark.quick

SCORE = ScoreRecord("exact", "", "", 1000, 0, 0.75, 0.72, 0.78, Interval.WILSON)
MATH = replace(SCORE, slice_column="topic", slice_value="math", rows=10, value=0.5)
DROP = ComparisonRecord(
    Role.BASELINE, "exact", "eval_b", 1000, 10, 41, 0, -0.031, -0.045, -0.017, 1.5e-05,
    Method.MCNEMAR,
)  # fmt: skip
BEFORE = replace(SCORE, value=0.781)


def gate(*rules: str, **more: Any) -> GateSpec:
    return GateSpec.from_json({"rules": list(rules), **more})


def verdict(given: GateSpec | None, *scores: ScoreRecord, change: Any = DROP) -> Verdict:
    there = given is not None and change is not None and change.role is given.against
    comparisons = [] if change is None else [change]
    return judge(given, scores or [SCORE, MATH], comparisons, [BEFORE] if there else []).verdict


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["exact>=0.75"], "passed"),
        (["exact>0.75"], "regressed"),
        (["exact<=0.75"], "passed"),
        (["exact<75%"], "regressed"),
        (["exact>=0.7", "exact>=0.8"], "regressed"),
        (["exact[topic=math]>=0.5"], "passed"),
        (["exact[topic=math]>=0.6"], "regressed"),
        (["exact[topic=art]>=0.6"], "incomplete"),
        (["exact:drop<=0.05"], "passed"),
        (["exact:drop<=0.031"], "passed"),
        (["exact:drop<=0.03"], "regressed"),
        (["exact:rise<=0"], "passed"),
        (["exact:p<0.05"], "regressed"),
        (["exact:p<0.00001"], "passed"),
        (["exact:drop<=0.02,p<0.05"], "regressed"),
        (["exact:drop<=0.02,p<0.00001"], "passed"),
        (["exact:drop<=0.05,p<0.05"], "passed"),
        ([], "passed"),
    ],
)
def test_verdicts(rules: list[str], expected: str) -> None:
    assert verdict(gate(*rules)) == expected


def test_without_a_gate_nothing_is_judged() -> None:
    assert judge(None, [replace(SCORE, missing=99)]).verdict is Verdict.UNGATED


def test_without_a_gate_an_evaluation_that_scored_no_row_is_incomplete() -> None:
    judged = judge(None, [SCORE, replace(SCORE, scorer="other", rows=0, missing=99)])
    assert judged.verdict is Verdict.INCOMPLETE
    assert [f.sentence for f in judged.findings] == ["other: none of 99 rows has a score"]


def test_a_rise_may_be_what_is_bad() -> None:
    rise = replace(DROP, difference=0.1)
    assert verdict(gate("exact:rise<=0.05"), change=rise) is Verdict.REGRESSED
    assert verdict(gate("exact:drop<=0"), change=rise) is Verdict.PASSED
    assert verdict(gate("exact:p"), change=rise) is Verdict.PASSED


def test_what_is_exactly_allowed_is_allowed_however_it_was_rounded() -> None:
    drop = replace(DROP, difference=-(0.1 + 0.2))
    assert verdict(gate("exact:drop<=0.3"), change=drop) is Verdict.PASSED


def test_without_an_earlier_evaluation_rules_about_changes_say_nothing() -> None:
    assert verdict(gate("exact:p"), change=None) is Verdict.UNGATED
    assert verdict(gate("exact:p", "exact>0"), change=None) is Verdict.PASSED
    assert verdict(gate("exact:p", "exact>1"), change=None) is Verdict.REGRESSED
    other = replace(DROP, role=Role.PREVIOUS)
    assert verdict(gate("exact:p"), change=other) is Verdict.UNGATED
    assert verdict(gate("exact:p", against="previous"), change=other) is Verdict.REGRESSED
    (finding,) = judge(gate("exact:p"), [SCORE]).findings
    assert finding.to_json() == {
        "rule": "exact:p",
        "passed": None,
        "sentence": "exact: there is no baseline evaluation to compare with yet",
    }


def test_an_earlier_evaluation_that_lacks_the_scorer_passes_nothing() -> None:
    """Else a gate would say nothing, night after night, of a scorer that came later."""
    other = replace(BEFORE, scorer="f1")
    for rules, passed in ((["exact:p"], [False]), (["exact>0", "exact:p"], [True, False])):
        judged = judge(gate(*rules), [SCORE, MATH], [replace(DROP, scorer="f1")], [other])
        assert judged.verdict is Verdict.INCOMPLETE
        assert [finding.passed for finding in judged.findings] == passed
        assert judged.findings[-1].sentence == (
            "exact: the baseline evaluation has no scores of it: bless one that has, once there "
            "is one"
        )


@pytest.mark.parametrize(
    ("missing", "allowed", "expected"),
    [(0, 0, "passed"), (1, 0, "incomplete"), (10, 10, "passed"), (11, 10, "incomplete"),
     (10, 0.01, "passed"), (11, 0.01, "incomplete")],
)  # fmt: skip
def test_missing_rows(missing: int, allowed: float, expected: str) -> None:
    score = replace(SCORE, rows=1000 - missing, missing=missing)
    assert verdict(gate("exact>0", missing=allowed), score) == expected


def test_missing_rows_come_before_rules_that_are_broken() -> None:
    score = replace(SCORE, rows=988, missing=12)
    found = judge(gate("exact>=0.8"), [score])
    assert found.verdict is Verdict.INCOMPLETE
    assert [(f.rule, f.passed, f.sentence) for f in found.findings] == [
        ("missing<=0", False, "exact: 12 of 1,000 rows have no score; 0 may be missing"),
        ("exact>=0.8", False,
         "exact is 0.7500 [0.7200, 0.7800] over 988 rows: that is not >= 0.8"),
    ]  # fmt: skip


def test_what_cannot_be_judged_is_incomplete() -> None:
    nothing = ScoreRecord("exact", "", "", 0, 5, None, None, None, None)
    found = judge(gate("exact>=0", missing=5), [nothing])
    assert found.verdict is Verdict.INCOMPLETE
    assert found.findings[0].sentence == "exact has no value: no row has a score"
    strangers = ComparisonRecord(Role.BASELINE, "exact", "e", 0, 0, 0, 9, *[None] * 5)
    found = judge(gate("exact:p"), [SCORE], [strangers])
    assert found.verdict is Verdict.INCOMPLETE
    assert "the data sets share no rows" in found.findings[0].sentence


@pytest.mark.parametrize(
    ("rule", "end"),
    [
        ("exact:drop<=0.02", ": only a drop of 0.02 is allowed"),
        ("exact:drop<=0.05", ": a drop of 0.05 is allowed"),
        ("exact:drop<=0.02,p<0.05", ": a drop of over 0.02, and significant at 0.05"),
        ("exact:drop<=0.02,p<1e-9", ": a drop of over 0.02, and not significant at 1e-09"),
        ("exact:p", ": a drop of over 0, and significant at 0.05"),
    ],
)
def test_a_sentence_has_all_that_it_is_about(rule: str, end: str) -> None:
    (finding,) = judge(gate(rule), [SCORE], [DROP], [BEFORE]).findings
    assert finding.sentence == (
        "exact dropped by 0.0310 from 0.7810 to 0.7500 since the baseline evaluation (over 1,000 "
        "pairs: 10 better, 41 worse; difference -0.031 [-0.0450, -0.0170], p < 0.0001 by "
        f"McNemar's exact test){end}"
    )


def test_a_sentence_without_a_change() -> None:
    same = replace(DROP, difference=0.0, p_value=1.0)
    (finding,) = judge(gate("exact:drop<=0"), [SCORE], [same]).findings
    assert finding.sentence.startswith("exact did not change since the baseline evaluation (over")
    assert "p = 1 by" in finding.sentence
