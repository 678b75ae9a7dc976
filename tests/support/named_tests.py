"""Tests that a page of the docs names as `tests/….py::test_…`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def named(text: str) -> list[tuple[str, str]]:
    """The file and the name of each, once and sorted."""
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)))


def is_a_test(path: str, name: str) -> bool:
    return name.startswith("test_") and name in _functions(path)


@cache
def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
