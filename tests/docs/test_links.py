"""Links between the pages, and to files of the repository, lead somewhere."""

from __future__ import annotations

import pytest

from tests.support.markdown_pages import ROOT, anchors, links, pages

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("page", pages())
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else ROOT / page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(str(target.relative_to(ROOT))), link


def test_pages_have_links_and_anchors() -> None:
    assert "docs/output.md" in links("README.md")
    assert "how-it-works" in anchors("README.md")
