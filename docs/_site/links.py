"""Links that Sphinx cannot follow by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

from _site.python_api import PACKAGES, public

ROOT = Path(__file__).parents[2]


def to_the_repository(app: Any, document: nodes.document) -> None:
    """A page outside of docs/ is a file to download, and a folder is text."""
    for node in list(document.findall(addnodes.pending_xref)):
        if node.get("reftype") != "myst":
            continue
        folder = (ROOT / "docs" / node["refdoc"]).parent
        # Of a page, MyST has made a whole path without its ending.
        page = Path(f"{node['reftarget']}.md") if node.get("refdomain") == "doc" else None
        if page is not None and page.is_absolute() and page.is_file():
            target = os.path.relpath(page, folder)
            kept = {"refdoc": node["refdoc"], "reftarget": target}
            node.replace_self(addnodes.download_reference("", "", *node.children, **kept))
        elif page is None and (folder / node["reftarget"]).is_dir():
            node.replace_self(nodes.inline("", "", *node.children))


def to_a_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """What users import goes by the name that they import, wherever it lies."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    name = target.rpartition(".")[2]
    for package in PACKAGES:
        if public(package).get(name) in (target, f"{package}.{target}"):
            domain = env.get_domain("py")
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, "obj", f"{package}.{name}", node, content
            )
    # The type of something inside: named, and not documented.
    return content if target.startswith(tuple(f"{package}." for package in PACKAGES)) else None
