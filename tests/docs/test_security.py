"""Each statement of the threat model names a test, and that test is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in names_in(path)


def test_every_statement_names_a_test() -> None:
    tables = PAGE.split("## Code")[1].split("## What is not defended")[0]
    rows = [row for row in tables.splitlines() if row.startswith("| ") and row != "| | test |"]
    assert len(rows) > 20
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row), row


def test_the_page_is_found() -> None:
    assert "docs/security.md" in (ROOT / "README.md").read_text("utf-8")
