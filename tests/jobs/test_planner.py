"""The order of rows and the cutting of chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import UsageError
from jobs.planner import check_chunk_rows, cut, prefix_order
from jobs.records import RowErrorInfo
from jobs.rows import Row

pytestmark = pytest.mark.quick

_texts = st.lists(st.sampled_from([b"a", b"b", b"ab"]), max_size=6).map(b"".join)
_rows = st.lists(
    st.one_of(
        _texts.map(lambda text: Row(1, prompt=text)),
        _texts.map(lambda text: Row(1, messages=text)),
        st.just(Row(1, error=RowErrorInfo("empty_prompt", "x"))),
    ),
    max_size=60,
)


def shared(a: bytes, b: bytes) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@settings(deadline=None)
@given(_rows, st.integers(1, 256))
def test_each_row_that_can_be_answered_is_in_one_chunk(rows: list[Row], chunk_rows: int) -> None:
    chunks = list(cut(prefix_order(rows), chunk_rows))
    planned = [i for chunk in chunks for i in chunk]
    assert sorted(planned) == [i for i, row in enumerate(rows) if row.error is None]
    assert all(len(chunk) == chunk_rows for chunk in chunks[:-1])
    assert all(1 <= len(chunk) <= chunk_rows for chunk in chunks)


@settings(deadline=None)
@given(st.lists(_texts, min_size=2, max_size=40))
def test_no_row_shares_more_with_any_other_than_with_a_neighbour(texts: list[bytes]) -> None:
    order = prefix_order([Row(1, messages=text) for text in texts])
    ordered = [texts[i] for i in order]
    best = [shared(a, b) for a, b in pairwise(ordered)]
    for i, text in enumerate(ordered):
        neighbours = best[max(0, i - 1) : i + 1]
        others = [shared(text, other) for j, other in enumerate(ordered) if j != i]
        assert max(neighbours) == max(others)


def test_chats_come_before_prompts_and_equal_rows_keep_their_order() -> None:
    rows = [
        Row(1, prompt=b"b"),
        Row(2, messages=b"[z"),
        Row(3, prompt=b"a"),
        Row(4, messages=b"[a"),
        Row(5, prompt=b"b"),
    ]
    assert prefix_order(rows) == [3, 1, 2, 0, 4]


def test_the_size_of_a_chunk_is_bounded() -> None:
    check_chunk_rows(1)
    check_chunk_rows(256)
    for wrong in (0, 257, -1):
        with pytest.raises(UsageError, match="from 1 to 256"):
            check_chunk_rows(wrong)


def test_rows_with_the_same_tools_stand_together_since_templates_write_tools_first() -> None:
    rows = [
        Row(1, messages=b"c"),
        Row(2, messages=b"b", chat=b"tools"),
        Row(3, messages=b"b"),
        Row(4, prompt=b"a"),
        Row(5, messages=b"c", chat=b"tools"),
    ]
    assert prefix_order(rows) == [2, 0, 1, 4, 3]
