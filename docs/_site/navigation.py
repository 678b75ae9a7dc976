"""The navigation of the site: the links of the index page, by its headings."""

from __future__ import annotations

import re

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
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
        "\n```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```\n".format(title, "\n".join(pages))
        for title, pages in sections(index).items()
    )
