"""Two evaluations compared row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from jobs.evaluation.aggregate import corpus_counts
from jobs.evaluation.compare import Flip, Pairing, Side, compare, flips, pair
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.statistics import mcnemar, paired_bootstrap
from jobs.records.evaluations import ComparisonRecord, Method, Role
from tests.support.scored_rows import row, scorer

pytestmark = pytest.mark.quick

NAN = float("nan")


def side(*values: float) -> Side:
    return Side(np.array(values, np.float64))


def pairs_of(found: Pairing) -> list[tuple[int, int]]:
    return list(zip(found.now.tolist(), found.then.tolist(), strict=True))


def test_pairs_are_found_by_key_wherever_they_stand() -> None:
    found = pair(["c", "a", "n", "b"], ["a", "b", "o", "c", "p"])
    assert pairs_of(found) == [
        (0, 3),
        (1, 0),
        (3, 1),
    ]
    assert found.only_now.tolist() == [2]
    assert found.only_then.tolist() == [2, 4]


def test_equal_rows_are_paired_once_each() -> None:
    found = pair(["a", "b", "a", "a"], ["a", "a", "b"])
    assert pairs_of(found) == [
        (0, 0),
        (1, 2),
        (2, 1),
    ]
    assert found.only_now.tolist() == [3]


@settings(max_examples=50)
@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_every_row_has_at_most_one_partner(now: list[str], then: list[str]) -> None:
    found = pair(now, then)
    assert [now[i] for i in found.now] == [then[i] for i in found.then]
    assert sorted([*found.now, *found.only_now]) == list(range(len(now)))
    assert sorted([*found.then, *found.only_then]) == list(range(len(then)))
    assert len(found.now) == sum(min(now.count(k), then.count(k)) for k in "abcd")


def test_right_and_wrong_are_compared_by_mcnemar() -> None:
    keys = [f"k{i}" for i in range(12)]
    now, then = [0.0] * 7 + [1.0] + [1.0] * 4, [1.0] * 7 + [0.0] + [1.0] * 4
    found = compare("exact", Role.BASELINE, "eval_x", pair(keys, keys), side(*now), side(*then))
    change = paired_bootstrap(np.array(now) - np.array(then), 0)
    assert found == ComparisonRecord(
        Role.BASELINE, "exact", "eval_x", 12, 1, 7, 0,
        -0.5, change.low, change.high, mcnemar(1, 7), Method.MCNEMAR,
    )  # fmt: skip


def test_other_scores_are_compared_by_a_bootstrap() -> None:
    keys = ["a", "b", "c"]
    now, then = side(0.5, 0.25, 1), side(0.5, 0.5, 0.25)
    found = compare("f1", Role.PREVIOUS, "e", pair(keys, keys), now, then, seed=4)
    change = paired_bootstrap(np.array([0, -0.25, 0.75]), 4)
    assert (found.pairs, found.better, found.worse) == (3, 1, 1)
    assert (found.difference, found.low, found.high, found.p_value) == change
    assert found.method is Method.BOOTSTRAP


def test_rows_that_only_one_has_a_score_for_are_counted_and_not_compared() -> None:
    pairing = pair(["a", "b", "c", "d", "n", "m"], ["d", "c", "b", "a", "o"])
    now = side(1, NAN, 0, NAN, 1, NAN)  # a, b, c, d, n, m
    then = side(NAN, 1, 1, 0, NAN)  # d, c, b, a, o
    found = compare("exact", Role.BASELINE, "e", pairing, now, then)
    assert (found.pairs, found.better, found.worse, found.unpaired) == (2, 1, 1, 2)
    assert found.difference == 0
    assert found.p_value == 1


def test_without_a_pair_there_is_no_difference() -> None:
    found = compare("exact", Role.BASELINE, "e", pair(["a"], ["b"]), side(1), side(0))
    assert found == ComparisonRecord(Role.BASELINE, "exact", "e", 0, 0, 0, 2, *[None] * 5)
    assert compare("exact", Role.BASELINE, "e", pair([], []), side(), side()).pairs == 0


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, NAN]), st.sampled_from([0.0, 1.0, NAN]))))
def test_now_and_then_are_each_others_mirror(values: list[tuple[float, float]]) -> None:
    keys = [str(i) for i in range(len(values))]
    a, b = side(*(v for v, _ in values)), side(*(v for _, v in values))
    there = compare("x", Role.BASELINE, "e", pair(keys, keys), a, b)
    back = compare("x", Role.BASELINE, "e", pair(keys, keys), b, a)
    assert (there.better, there.worse, there.unpaired) == (back.worse, back.better, back.unpaired)
    assert there.difference == (
        None if back.difference is None else pytest.approx(-back.difference)
    )
    assert there.p_value == (None if back.p_value is None else pytest.approx(back.p_value, abs=0.1))


def test_corpora_are_compared_as_a_whole() -> None:
    made = scorer("bleu")
    assert isinstance(made, CorpusScorer)
    targets = [
        "the cat sat on the mat today",
        "it rains in the north of it all",
        "so be it then my friend",
    ]
    worse = ["the cat sat on the mat today", "it rains in north of it all", "be it then friend"]
    keys = ["a", "b", "c"]

    def of(answers: list[str]) -> Side:
        rows = [row(a, t) for a, t in zip(answers, targets, strict=True)]
        scores = [made.score(r) for r in rows]
        return Side(np.array([s.value for s in scores], np.float64), corpus_counts(scores))

    found = compare(
        "bleu", Role.BASELINE, "e", pair(keys, keys), of(worse), of(targets), corpus=made
    )
    expected = BLEU().corpus_score(worse, [targets]).score / 100 - 1
    assert found.difference == pytest.approx(expected)
    assert (found.better, found.worse, found.method) == (0, 2, Method.BOOTSTRAP)
    assert found.low is not None
    assert found.high is not None
    assert found.low < expected < found.high <= 0


def test_flips_are_the_greatest_first() -> None:
    pairing = pair(["a", "b", "c", "d", "e"], ["e", "d", "c", "b", "a"])
    now = np.array([1, 0.5, 0, NAN, 1])
    then = np.array([1, 1, 1, 0.75, 0])  # e, d, c, b, a
    losses = [Flip(2, 2, 0, 1), Flip(1, 3, 0.5, 0.75)]
    assert flips(pairing, now, then) == [*losses, Flip(0, 4, 1, 0)]
    assert flips(pairing, now, then, most=1) == [losses[0], Flip(0, 4, 1, 0)]
