"""The navigation of the site: the links of the index page, by its headings, and of folders."""

from __future__ import annotations

import re

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_TREE = "\n```{{toctree}}\n:hidden:\n{}\n{}\n```\n"
_PAGE = re.compile(r"\]\(([\w/-]+)\.md\)")


def sections(index: str) -> dict[str, list[str]]:
    """The pages that each section of the index leads to, once and in its order."""
    _, *parts = _HEADING.split(index)
    listed: dict[str, list[str]] = {}
    seen: set[str] = set()
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        pages = [page for page in dict.fromkeys(_PAGE.findall(text)) if page not in seen]
        seen.update(pages)
        if pages:
            listed[title] = pages
    return listed


def markdown(index: str) -> str:
    return "".join(
        _TREE.format(f":caption: {title}\n", "\n".join(pages))
        for title, pages in sections(index).items()
    )


def below(index: str) -> str:
    """Of the index of a folder: its pages stand below it, and are folded away elsewhere."""
    return _TREE.format("", "\n".join(dict.fromkeys(_PAGE.findall(index))))
