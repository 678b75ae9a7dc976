"""Texts of others on a page: what must not be obeyed is shown, and what is long is cut.

Escaping is Jinja's business (see `jobs.report.page`); here is what escaping leaves alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_TEXT = 1_500  # characters of a text on the page
_LEAD = 200  # characters that two texts share, shown before they part
_MOST_WORDS = 500  # of each text: the time that a comparison takes grows with their product

# C0 but tab and line feed, DEL; they have pictures. C1, what turns the direction of writing round,
# surrogates (which have no UTF-8) and what is no character have none.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def shown(text: str) -> str:
    """A text that a page may hold: control characters become pictures of them, or U+FFFD."""
    return _CONTROLS.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x7F:
        return "\u2421"
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text.

    Attributes:
        before, after: how many characters are left out there.
    """

    text: str
    before: int = 0
    after: int = 0


def cut(text: str, start: int = 0, longest: int = MAX_TEXT) -> Excerpt:
    part = text[start : start + longest]
    return Excerpt(part, start, len(text) - start - len(part))


@dataclass(frozen=True, slots=True)
class Piece:
    """Some words, and whether only one of the two texts has them there."""

    text: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """Two texts, word by word.

    Attributes:
        left_out_before, left_out_now: characters after the pieces that are not shown.
        skipped: characters before them, the same in both texts.
    """

    before: tuple[Piece, ...]
    now: tuple[Piece, ...]
    skipped: int
    left_out_before: int
    left_out_now: int


def compared(before: str, now: str, longest: int = MAX_TEXT) -> Compared:
    """Where two texts part; what they share at the start is left out where it is long."""
    shared = 0
    if max(len(before), len(now)) > longest:
        shared = max(0, _common_start(before, now) - _LEAD)
    old, new = cut(before, shared, longest), cut(now, shared, longest)
    pieces = _pieces(_WORDS.findall(old.text), _WORDS.findall(new.text))
    return Compared(*pieces, shared, old.after, new.after)


def _common_start(a: str, b: str) -> int:
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))


def _pieces(old: list[str], new: list[str]) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    if max(len(old), len(new)) > _MOST_WORDS:
        changed = old != new
        return _one(old, changed), _one(new, changed)
    before: list[Piece] = []
    now: list[Piece] = []
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        before += _one(old[i:j], kind != "equal")
        now += _one(new[k:m], kind != "equal")
    return tuple(before), tuple(now)


def _one(words: list[str], changed: bool) -> tuple[Piece, ...]:
    return (Piece("".join(words), changed),) if words else ()
