"""A series of evaluations with all that a report may have to show."""

from __future__ import annotations

import random
from typing import Any

from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationState,
    Interval,
    Method,
    Role,
    ScoreRecord,
    Verdict,
)
from tests.support.made_evaluations import START, MadeEvaluations, a_row, a_spec

TOPICS = ("history", "law", "maths")


def score(scorer: str, value: float, rows: int = 196, **values: Any) -> ScoreRecord:
    given = {
        "slice_column": "", "slice_value": "", "missing": 4, "low": value - 0.06,
        "high": value + 0.05, "interval": Interval.WILSON, **values,
    }  # fmt: skip
    return ScoreRecord(scorer=scorer, rows=rows, value=value, **given)


def comparison(role: Role, scorer: str, other_id: str, **values: Any) -> ComparisonRecord:
    given = {
        "pairs": 196, "better": 8, "worse": 25, "unpaired": 2, "difference": -0.0867,
        "low": -0.1478, "high": -0.0312, "p_value": 0.00421, "method": Method.MCNEMAR, **values,
    }  # fmt: skip
    return ComparisonRecord(role=role, scorer=scorer, other_id=other_id, **given)


def answered(share: float, seed: int, rows: int = 200) -> list[dict[str, Any]]:
    """Rows of which about that share is right; one in fifty has no answer."""
    draw = random.Random(seed)
    found = []
    for i in range(rows):
        right = draw.random() < share
        f1 = round(draw.random(), 3)
        word = "yes" if right else "no"
        answer = f"The answer to question {i} is {word}, for reason {draw.randint(1, 3)}."
        if i % 50 == 0:
            row = a_row(i, None, error="row_timeout", custom_id=f"q-{i}", exact=None, f1=None)
        else:
            notes = {"exact": word}
            row = a_row(i, answer, custom_id=f"q-{i}", notes=notes, exact=float(right), f1=f1)
        found.append(row)
    return found


def add_series(made: MadeEvaluations) -> dict[str, str]:
    """Ten runs: the second a baseline, the fifth failed, the sixth skipped, then another model and
    other data, the last regressed. Returns ids by their names here."""
    ids: dict[str, str] = {}
    draw = random.Random(7)
    spec = a_spec("exact", "f1")
    later = a_spec(
        "exact", "f1", model="another-model",
        submit={"system": "Answer in one short word.", "temperature": 0.2},
    )  # fmt: skip
    for k in range(10):
        if k == 4:
            ids["failed"] = made.add(
                state=EvaluationState.FAILED, verdict=Verdict.FAILED, spec=spec,
                error_code="job_failed", error_message="job job_x failed: no worker was alive",
            )  # fmt: skip
            continue
        if k == 5:
            ids["skipped"] = made.add(
                state=EvaluationState.SKIPPED, spec=spec, error_message="an earlier one still ran"
            )
            continue
        value = 0.72 + 0.02 * draw.random() - (0.1 if k == 9 else 0)
        scores = [
            score("exact", value),
            score("f1", value * 0.8, interval=Interval.BOOTSTRAP),
            *(
                score("exact", value + d, n, slice_column="topic", slice_value=topic, missing=0)
                for topic, d, n in zip(TOPICS, (0.1, 0.02 * k, -0.2), (100, 16, 80), strict=True)
            ),
        ]
        more: dict[str, Any] = {}
        if k == 1:
            more["blessed_at"] = START
        if k == 9:
            more = {
                "verdict": Verdict.REGRESSED,
                "findings": [
                    {"rule": "exact:drop<=0.02", "passed": False, "sentence": "exact fell"},
                    {"rule": "exact>=0.5", "passed": True, "sentence": "exact is at least 0.5"},
                ],
                "comparisons": [
                    comparison(Role.BASELINE, "exact", ids["baseline"]),
                    comparison(
                        Role.BASELINE, "f1", ids["baseline"], difference=-0.0213, low=-0.0601,
                        high=0.0207, p_value=0.3391, method=Method.BOOTSTRAP,
                    ),
                    comparison(Role.PREVIOUS, "exact", ids["previous"]),
                    comparison(
                        Role.PREVIOUS, "f1", ids["previous"], difference=0.0501, low=0.0102,
                        high=0.0899, p_value=0.00041, method=Method.BOOTSTRAP,
                    ),
                ],
            }  # fmt: skip
        made_id = made.add(
            scores=scores, rows=answered(value, k), spec=later if k >= 6 else spec,
            dataset_hash=("e" if k >= 8 else "d") * 64, **more,
        )  # fmt: skip
        ids[{1: "baseline", 8: "previous", 9: "newest"}.get(k, f"run {k}")] = made_id
    return ids
