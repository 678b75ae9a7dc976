"""The Markdown of the repository that people read, taken apart."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]


def pages() -> list[str]:
    """Their paths in the repository."""
    folders = ("docs", "examples")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.md")]
    found += [ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
    return sorted(str(path.relative_to(ROOT)) for path in found)


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        line: of its fence, from 1.
        language: the first word behind the fence; words after it say more, such as a database.
    """

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    found = []
    for token in _tokens(page):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            language, *words = token.info.split() or [""]
            found.append(Block(page, token.map[0] + 1, language, tuple(words), token.content))
    return found


def links(page: str) -> list[str]:
    """Where its links and pictures lead, as they are written."""
    return [
        str(target)
        for token in _tokens(page)
        for child in token.children or ()
        if (target := child.attrGet("href") or child.attrGet("src"))
    ]


def anchors(page: str) -> set[str]:
    """The names that a code host gives to its headings."""
    found: dict[str, int] = {}
    names = set()
    tokens = _tokens(page)
    for heading, inline in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            text = "".join(
                child.content
                for child in inline.children or ()
                if child.type in ("text", "code_inline")
            )
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            names.add(f"{slug}-{found[slug]}" if slug in found else slug)
            found[slug] = found.get(slug, 0) + 1
    return names


@cache
def _tokens(page: str) -> list[Token]:
    return MarkdownIt().enable("table").parse((ROOT / page).read_text("utf-8"))
