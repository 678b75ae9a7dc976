"""What the site has beyond the pages: navigation, and reference made of the program itself.

A page that is made of the program says so, and how to see the same on a terminal, in a sentence
that is readable on a code host; its comment `<!-- site: NAME -->` is where the site has the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from _site import commands, links, navigation, python_api, settings, views

_MARK = re.compile(r"^<!-- site: (\w+) -->$", re.MULTILINE)
_MADE: dict[str, Callable[[], str]] = {
    "commands": commands.markdown,
    "settings": settings.markdown,
    "views": views.markdown,
    "jobs": lambda: python_api.markdown("jobs"),
    "engine": lambda: python_api.markdown("engine"),
}


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _complete)
    # Before Sphinx collects what is to be downloaded.
    app.connect("doctree-read", links.to_the_repository, priority=100)
    app.connect("missing-reference", links.to_a_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _complete(app: Any, page: str, source: list[str]) -> None:
    text = _MARK.sub(lambda mark: _MADE[mark[1]](), source[0])
    if page == app.config.root_doc:
        text += navigation.markdown(text)
    elif page.endswith("/index"):
        text += navigation.below(text)
    source[0] = text
