"""Cutting bytes into lines."""

from __future__ import annotations

import io
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.reading.lines import split_lines

pytestmark = pytest.mark.quick


def split(
    content: bytes, limit: int = 100, read_bytes: int = 1 << 20
) -> list[tuple[int, bytes | None]]:
    return list(split_lines(io.BytesIO(content).read, limit=limit, read_bytes=read_bytes))


def test_line_ends_blank_lines_and_the_byte_order_mark() -> None:
    content = b"\xef\xbb\xbfone\r\n\r\n \t\n\ntwo\nthree"
    assert split(content) == [(1, b"one\r"), (5, b"two"), (6, b"three")]


def test_only_the_first_byte_order_mark_is_dropped() -> None:
    assert split(b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbfb") == [
        (1, b"\xef\xbb\xbfa"),
        (2, b"\xef\xbb\xbfb"),
    ]


def test_nothing_makes_no_lines() -> None:
    assert split(b"") == split(b"\n\n\r\n") == split(b"\xef\xbb\xbf") == []


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_at_the_limit_is_kept_and_a_longer_one_is_not(end: bytes) -> None:
    assert split(b"a\n" + b"x" * 100 + end) == [(1, b"a"), (2, b"x" * 100)]
    assert split(b"a\n" + b"x" * 101 + end) == [(1, b"a"), (2, None)]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r\n", b" ", b"\xef\xbb\xbf"]), max_size=30),
    st.integers(1, 9),
    st.integers(1, 6),
)
def test_lines_do_not_depend_on_how_the_bytes_arrive(
    pieces: list[bytes], read_bytes: int, limit: int
) -> None:
    content = b"".join(pieces)
    expected = [
        (number, line if len(line) <= limit else None)
        for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1)
        if line.strip() or len(line) > limit
    ]
    assert split(content, limit, read_bytes) == expected


def test_a_line_over_the_limit_is_never_held() -> None:
    total, sent = 64 << 20, 0

    def read(size: int) -> bytes:
        nonlocal sent
        size = min(size, total - sent)
        sent += size
        return b"x" * size

    tracemalloc.start()
    try:
        assert list(split_lines(read, limit=4 << 20)) == [(1, None)]
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
