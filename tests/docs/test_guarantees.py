"""Each guarantee names tests, which `make test` and `make chaos` run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.named_tests import ROOT, is_a_test, named, page

PAGE = page("guarantees.md")
GUARANTEES = re.findall(r"^\d+\. .*?(?=^\d+\. |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.quick
@pytest.mark.parametrize(("path", "name"), named(PAGE))
def test_a_named_test_exists(path: str, name: str) -> None:
    assert is_a_test(path, name)


@pytest.mark.quick
@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda text: text.split()[0])
def test_a_guarantee_names_tests_and_nothing_else_in_code(guarantee: str) -> None:
    assert named(guarantee)
    tests = re.findall(r"`tests/[^`]*`", guarantee)
    assert sorted(tests) == [f"`{path}::{name}`" for path, name in named(guarantee)]


@pytest.mark.quick
def test_they_are_about_a_dozen_and_numbered() -> None:
    numbers = [int(guarantee.split(".")[0]) for guarantee in GUARANTEES]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 12 <= len(numbers) <= 20


@pytest.mark.quick
def test_the_page_is_found() -> None:
    assert "(docs/guarantees.md)" in (ROOT / "README.md").read_text("utf-8")


def test_named_tests_are_collected() -> None:
    """None needs a GPU, or is hidden by an error of its file."""
    files = sorted({path for path, _ in named(PAGE)})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "not gpu", "--collect-only", "-q",
         *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert collected.returncode == 0, collected.stdout + collected.stderr
    found = {line.partition("[")[0] for line in collected.stdout.splitlines()}
    assert {f"{path}::{name}" for path, name in named(PAGE)} <= found
