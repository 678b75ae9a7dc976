"""Scores summed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from jobs.evaluation import aggregate
from jobs.evaluation.aggregate import NULL, OTHER, Aggregator, slice_text
from jobs.evaluation.rows import Score, ScoredRow
from jobs.evaluation.statistics import bootstrap, wilson
from jobs.records.evaluations import Interval, ScoreRecord
from tests.support.scored_rows import row, scorer

pytestmark = pytest.mark.quick


def summed(
    scores: list[float | None],
    columns: list[dict[str, Any]] | None = None,
    batch: int = 3,
    **more: Any,
) -> list[ScoreRecord]:
    """Scores of `exact`, in batches."""
    rows = [row("x", "x", columns=c) for c in columns or [{}] * len(scores)]
    found = Aggregator({"exact": scorer("exact")}, **more)
    for start in range(0, len(rows), batch):
        part = slice(start, start + batch)
        found.add(rows[part], {"exact": [Score(value) for value in scores[part]]})
    return found.result()


def test_right_and_wrong_have_the_interval_of_a_share() -> None:
    (record,) = summed([1, 0, 1, 1, None])
    low, high = wilson(3, 4)
    assert record == ScoreRecord("exact", "", "", 4, 1, 0.75, low, high, Interval.WILSON)


def test_other_scores_have_a_bootstrap() -> None:
    values = [1, 0.5, 0.25, 1]
    (record,) = summed([*values, None], seed=5)
    low, high = bootstrap(np.array(values), 5)
    assert record == ScoreRecord("exact", "", "", 4, 1, 0.6875, low, high, Interval.BOOTSTRAP)


@pytest.mark.parametrize("scores", [[], [None, None]])
def test_without_a_score_there_is_no_value(scores: list[float | None]) -> None:
    missing = len(scores)
    assert summed(scores) == [ScoreRecord("exact", "", "", 0, missing, *[None] * 4)]


def test_batches_change_nothing() -> None:
    scores = [0.1 * i for i in range(10)]
    columns = [{"t": i % 3} for i in range(10)]
    expected = summed(scores, columns, 100, slices=["t"])
    for batch in (1, 3, 7):
        assert summed(scores, columns, batch, slices=["t"]) == expected


def test_slices_come_by_column_and_value() -> None:
    columns: list[dict[str, Any]] = [
        {"t": "b", "n": 1}, {"t": "a", "n": 1.0}, {"t": None, "n": True}, {"n": 2}, {"t": "a"},
    ]  # fmt: skip
    records = summed([1, 0, 1, None, 1], columns, slices=["t", "n"])
    assert [(r.slice_column, r.slice_value, r.rows, r.missing, r.value) for r in records] == [
        ("", "", 4, 1, 0.75),
        ("t", NULL, 1, 1, 1.0),
        ("t", "a", 2, 0, 0.5),
        ("t", "b", 1, 0, 1.0),
        ("n", NULL, 1, 0, 1.0),
        ("n", "1", 2, 0, 0.5),
        ("n", "2", 0, 1, None),
        ("n", "true", 1, 0, 1.0),
    ]


def test_the_rarest_values_are_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "MAX_SLICES", 2)
    values = ["a", "b", "b", "c", "c", "c", "d"]
    records = summed([1] * 7, [{"t": v} for v in values], slices=["t"])
    assert [(r.slice_value, r.rows) for r in records] == [("", 7), ("b", 2), ("c", 3), (OTHER, 2)]


def test_values_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "MAX_VALUES", 3)
    values = ["a", "b", "c", "d", "e", "a"]
    records = summed([1] * 6, [{"t": v} for v in values], slices=["t"])
    assert [(r.slice_value, r.rows) for r in records] == [
        ("", 6), ("a", 2), ("b", 1), ("c", 1), (OTHER, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, NULL), ("", ""), (1.0, "1"), (0.5, "0.5"), (False, "false"), ([1, "a"], '[1,"a"]'),
     ({"a": None}, '{"a":null}'), ("x" * 300, "x" * 199 + "…")],
)  # fmt: skip
def test_what_slices_are_called(value: Any, text: str) -> None:
    assert slice_text(value) == text


def test_the_value_of_a_corpus_is_that_of_all_its_texts() -> None:
    texts = [
        ("the cat sat on the mat today", "the cat sat on a mat today", "a"),
        ("it is raining in the north", "it rains in the north of it", "a"),
        ("what a fine day to be out", "what a fine day to be out", "b"),
    ]
    rows = [row(answer, target, columns={"t": t}) for answer, target, t in texts]
    rows.insert(1, row(None, "x", error="expired", columns={"t": "a"}))
    made = scorer("bleu")
    found = Aggregator({"bleu": made}, ["t"])
    found.add([], {"bleu": []})
    for given in (rows[1:2], rows[:1], rows[2:]):  # the first batch adds nothing
        found.add(given, {"bleu": [made.score(r) for r in given]})
    whole, a, b = found.result()

    def bleu(chosen: list[tuple[str, str, str]]) -> float:
        answers, targets = [t[0] for t in chosen], [[t[1] for t in chosen]]
        return float(BLEU().corpus_score(answers, targets).score) / 100

    assert (whole.rows, whole.missing, whole.interval) == (3, 1, Interval.BOOTSTRAP)
    assert whole.value == pytest.approx(bleu(texts))
    assert a.value == pytest.approx(bleu(texts[:2]))
    assert (b.value, b.low, b.high) == pytest.approx((1, 1, 1))
    assert whole.value != pytest.approx(sum(made.score(r).value or 0 for r in rows) / 3)
    assert whole.low is not None
    assert whole.high is not None
    assert whole.low < whole.value < whole.high


def test_rows_that_are_missing_change_no_interval_of_a_corpus() -> None:
    made = scorer("chrf")
    answers = ["the cat sat", "it rains", "so be it", "who knows", "nothing", "well then"]
    targets = ["a cat sat", "it rained", "be it so", "who knew that", "something", "well"]
    rows = [row(answer, target) for answer, target in zip(answers, targets, strict=True)]
    records = []
    for given in (rows, [row(None, "x", error="expired"), *rows, row("x")]):
        found = Aggregator({"chrf": made})
        found.add(given, {"chrf": [made.score(r) for r in given]})
        records += found.result()
    assert (records[1].rows, records[1].missing) == (6, 2)
    assert (records[0].value, records[0].low, records[0].high) == (
        records[1].value, records[1].low, records[1].high,
    )  # fmt: skip


def test_scores_that_do_not_fit_their_rows() -> None:
    rows: list[ScoredRow] = [row("x", "x")]
    with pytest.raises(ValueError, match="exact has 0 scores of 1 rows"):
        Aggregator({"exact": scorer("exact")}).add(rows, {"exact": []})
