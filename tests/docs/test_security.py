"""Each statement of the threat model names a test, and that test is there."""

from __future__ import annotations

import re

import pytest

from tests.support.named_tests import ROOT, is_a_test, named, page

pytestmark = pytest.mark.quick

PAGE = page("security.md")


@pytest.mark.parametrize(("path", "name"), named(PAGE))
def test_a_named_test_exists(path: str, name: str) -> None:
    assert is_a_test(path, name)


def test_every_statement_names_a_test() -> None:
    tables = PAGE.split("## Code")[1].split("## What is not defended")[0]
    rows = [row for row in tables.splitlines() if row.startswith("| ") and row != "| | test |"]
    assert len(rows) > 20
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row), row


def test_the_page_is_found() -> None:
    assert "docs/security.md" in (ROOT / "README.md").read_text("utf-8")
