"""What a page makes of texts: nothing is obeyed, nothing is lost but what it says is left out."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.report.numbers import decimal, probability
from jobs.report.texts import MAX_TEXT, Piece, compared, cut, shown

pytestmark = pytest.mark.quick

ANY = st.text(st.characters(codec=None), max_size=200)
WORDS = st.lists(st.sampled_from(["yes", "no", "maybe", " ", "\n", ".", "é", "中"]), max_size=40)


@given(ANY)
def test_no_text_has_what_a_page_would_obey(text: str) -> None:
    seen = shown(text)

    assert len(seen) == len(text)
    seen.encode()  # surrogates could not be
    for character in seen:
        assert unicodedata.category(character) not in ("Cc", "Cs") or character in "\t\n"
        assert unicodedata.bidirectional(character) not in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        )  # fmt: skip


def test_controls_are_pictures_of_themselves() -> None:
    assert shown("a\0b\x1b[31m\x7f\tc\n\u202eevil\ud800") == "a␀b␛[31m␡\tc\n�evil�"


@given(WORDS, WORDS)
def test_pieces_are_the_texts(old: list[str], new: list[str]) -> None:
    before, now = "".join(old), "".join(new)

    found = compared(before, now)

    assert "".join(piece.text for piece in found.before) == before
    assert "".join(piece.text for piece in found.now) == now
    kept = [[p.text for p in pieces if not p.changed] for pieces in (found.before, found.now)]
    assert kept[0] == kept[1]
    assert (before == now) == (not any(p.changed for p in (*found.before, *found.now)))


def test_words_are_compared_not_characters() -> None:
    found = compared("The answer is 41, I think.", "The answer is 42, I think.")

    assert found.before == (
        Piece("The answer is ", False), Piece("41", True), Piece(", I think.", False),
    )  # fmt: skip
    assert found.now[1] == Piece("42", True)


def test_a_long_text_is_shown_where_it_parts() -> None:
    same = "word " * 2_000
    found = compared(f"{same}left", f"{same}right and more")

    assert 0 < found.skipped < len(same)
    assert found.now[-1] == Piece("right and more", True)
    assert (found.left_out_before, found.left_out_now) == (0, 0)
    assert sum(len(piece.text) for piece in found.now) < MAX_TEXT


def test_what_is_left_out_is_counted() -> None:
    found = compared("a " * 5_000, "b " * 5_000)

    shown_there = sum(len(piece.text) for piece in found.before)
    assert found.skipped + shown_there + found.left_out_before == 10_000
    assert shown_there == MAX_TEXT
    excerpt = cut("x" * 2_000)
    assert (len(excerpt.text), excerpt.before, excerpt.after) == (MAX_TEXT, 0, 2_000 - MAX_TEXT)


def test_numbers_are_short_and_never_a_wrong_zero() -> None:
    assert decimal(0.8333333) == "0.833"
    assert decimal(-0.0209, signed=True) == "\u22120.021"
    assert decimal(0.05, signed=True) == "+0.050"
    assert decimal(0.00002) == "2.0e\u221205"
    assert decimal(0) == "0.000"
    assert decimal(0.75, short=True) == "0.75"
    assert decimal(100, short=True) == "100"
    assert decimal(12345678.9) == "1.235e+07"
    assert probability(0.0004) == "<0.001"
    assert probability(0.0342) == "0.034"
