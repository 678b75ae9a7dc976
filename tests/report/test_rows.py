"""Rows of two runs are paired by what they are, and counted whatever is shown of them."""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import OutputError
from jobs.evaluation.scores_file import ScoresFile, scores_path
from jobs.report.other import scores_of
from jobs.report.rows import MAX_KEPT, SHOWN_REASONS, Changes, Reason, TwoRuns, reasons
from jobs.storage import Storage
from tests.support.made_evaluations import MadeEvaluations, a_row, write_scores

pytestmark = pytest.mark.quick

SCORE = st.sampled_from([0.0, 0.5, 1.0, None])
RUN = st.lists(st.tuples(st.integers(0, 12), SCORE, SCORE), max_size=25)


def write(storage: Storage, name: str, *rows: dict[str, Any]) -> ScoresFile:
    path = scores_path(f"eval_{name}", 1)
    write_scores(storage, path, rows)
    return ScoresFile(storage, path)


def run_of(
    storage: Storage, name: str, scores: list[tuple[int, float | None, float | None]]
) -> ScoresFile:
    rows = [a_row(i, f"answer {i}", key=key, exact=a, f1=b) for i, (key, a, b) in enumerate(scores)]
    found = write(storage, name, *(rows or [a_row(0, "a", exact=1.0, f1=1.0)]))
    if not rows:
        path = storage.root / found.path
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    return found


def changes(
    before: ScoresFile, now: ScoresFile, scorers: list[str], falling: list[str], limit: int
) -> Changes:
    return TwoRuns(before, now, scorers).changes(falling, limit)


def nth(scores: list[tuple[int, float | None, float | None]]) -> dict[tuple[int, int], Any]:
    """Scores by key, and by which of those with that key they are."""
    found: dict[tuple[int, int], Any] = {}
    for row, (key, *values) in enumerate(scores):
        number = sum(1 for other in found if other[0] == key)
        found[key, number] = (row, values)
    return found


@pytest.mark.slow
@settings(deadline=None)  # files are written
@given(RUN, RUN)
def test_rows_are_paired_by_key_and_order(before: Any, now: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        old, new = run_of(storage, "old", before), run_of(storage, "new", now)
        found = changes(old, new, ["exact", "f1"], [], 100)

    theirs, ours = nth(before), nth(now)
    both = theirs.keys() & ours.keys()
    moves = {
        ours[pair][0]: [
            0.0 if a is None or b is None else b - a
            for a, b in zip(theirs[pair][1], ours[pair][1], strict=True)
        ]
        for pair in both
    }
    worse = {row for row, moved in moves.items() if min(moved) < 0}
    better = {row for row, moved in moves.items() if min(moved) >= 0 < max(moved)}
    assert (found.pairs, found.only_before, found.only_now) == (
        len(both), len(before) - len(both), len(now) - len(both),
    )  # fmt: skip
    assert {e.row_index for e in found.worse_rows} == worse
    assert {e.row_index for e in found.better_rows} == better
    assert (found.worse, found.better) == (len(worse), len(better))
    for example in (*found.worse_rows, *found.better_rows):
        assert example.now.answer == f"answer {example.row_index}"
        assert dict(example.now.scores) == dict(
            zip(("exact", "f1"), now[example.row_index][1:], strict=True)
        )
    drops = [min(moves[e.row_index]) for e in found.worse_rows]
    assert drops == sorted(drops)


def test_shown_rows_are_capped_and_counted(storage: Storage) -> None:
    old = write(storage, "a", *(a_row(i, "yes", exact=1.0) for i in range(300)))
    new = write(storage, "b", *(a_row(i, "no", exact=float(i >= 200)) for i in range(300)))

    found = changes(old, new, ["exact"], [], 7)

    assert (found.worse, found.better) == (200, 0)
    assert [e.row_index for e in found.worse_rows] == list(range(7))
    assert changes(old, new, ["exact"], [], 0).worse_rows == ()


def test_less_may_be_better(storage: Storage) -> None:
    old = write(storage, "a", a_row(0, "a", latency=2.0), a_row(1, "b", latency=1.0))
    new = write(storage, "b", a_row(0, "a", latency=1.0), a_row(1, "b", latency=2.0))

    found = changes(old, new, ["latency"], ["latency"], 5)

    assert [e.row_index for e in found.worse_rows] == [1]
    assert [e.row_index for e in found.better_rows] == [0]


def test_rows_come_in_other_orders_and_places(storage: Storage) -> None:
    old = write(storage, "a", *(a_row(i, f"old {i}", exact=1.0) for i in reversed(range(200))))
    new = write(storage, "b", *(a_row(i, f"new {i}", exact=float(i != 150)) for i in range(200)))

    (example,) = changes(old, new, ["exact"], [], 5).worse_rows

    assert (example.before.answer, example.now.answer) == ("old 150", "new 150")
    assert example.prompt == "question 150"


def test_a_huge_text_is_not_kept(storage: Storage) -> None:
    old = write(storage, "a", a_row(0, "x" * 1_000_000, exact=1.0))
    new = write(storage, "b", a_row(0, None, error="row_timeout", exact=0.0))

    (example,) = changes(old, new, ["exact"], [], 5).worse_rows

    assert example.before.answer == "x" * MAX_KEPT
    assert (example.now.answer, example.now.error) == (None, "row_timeout")


def test_reasons_are_counted_by_scorer(storage: Storage) -> None:
    rows = [
        a_row(0, "a", exact=1.0, f1=None, notes={"f1": "no words"}),
        a_row(1, None, error="row_timeout", exact=None, f1=None),
        a_row(2, None, error="row_timeout", exact=None, f1=None),
        a_row(3, "b", exact=None, f1=0.5),
    ]

    assert reasons(write(storage, "a", *rows)) == (
        Reason("exact", "row_timeout", 2),
        Reason("exact", "no reason given", 1),
        Reason("f1", "row_timeout", 2),
        Reason("f1", "no words", 1),
    )


def test_reasons_of_which_each_is_another_are_summed_up(storage: Storage) -> None:
    rows = [a_row(i, "a", exact=None, notes={"exact": f"not {i}"}) for i in range(3_000)]

    found = reasons(write(storage, "a", *rows))

    assert sum(reason.rows for reason in found) == 3_000
    assert len(found) <= SHOWN_REASONS + 1
    assert [reason.reason for reason in found].count("other reasons") == 1


def test_a_file_that_is_gone_or_damaged_is_said(made: MadeEvaluations, storage: Storage) -> None:
    evaluation = made.record(made.add(rows=[a_row(0, "a", exact=1.0)]))
    found = scores_of(storage, evaluation)
    assert isinstance(found, ScoresFile)
    assert found.scorers == ["exact"]
    path = storage.root / found.path
    path.write_bytes(b"PAR1 and no more")
    assert "are gone or damaged" in str(scores_of(storage, evaluation))
    with pytest.raises(OutputError):
        reasons(found)
    path.unlink()
    assert "are gone or damaged" in str(scores_of(storage, evaluation))


def test_columns_are_read_by_their_whole_names(storage: Storage) -> None:
    """Arrow takes the part before a point for the name of a struct."""
    old = write(storage, "a", a_row(0, "a", **{"v1": 1.0, "v1.2": 0.0}))
    new = write(storage, "b", a_row(0, "b", **{"v1": 1.0, "v1.2": 1.0}))

    (example,) = changes(old, new, ["v1", "v1.2"], [], 5).better_rows

    assert example.changed == ("v1.2",)
