"""The committed table of what kernels are compiled to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from tests.kernels.gpu.aot.row import Row, header, parse

PATH = Path(__file__).with_name("table.txt")
_TITLE = """\
# What the Triton kernels are compiled to. `make aot AOT_SAVE=1` writes it; docs/kernels.md says how
# to read it.
"""
_WITH = "# triton "


def load(path: Path = PATH) -> list[Row]:
    lines = path.read_text("utf-8").splitlines()
    return [parse(line) for line in lines if line and line != header() and line[0] != "#"]


def differences(rows: Iterable[Row], path: Path = PATH) -> str:
    """A diff of the table's rows of the same cases, targets and version, and of `rows`."""
    rows = sorted(rows, key=lambda row: row.key)
    about = {(row.case, row.target, row.triton) for row in rows}
    known = [row for row in load(path) if (row.case, row.target, row.triton) in about]
    diff = difflib.unified_diff(
        [header(), *(row.line() for row in known)],
        [header(), *(row.line() for row in rows)],
        "the table", "compiled", lineterm="", n=0,
    )  # fmt: skip
    return "\n".join(diff)


def save(rows: Iterable[Row], cases: Iterable[str], when: str, path: Path = PATH) -> None:
    """Put `rows` in place of the table's of the same cases, targets and versions.

    Args:
        cases: all that there are; rows of others are dropped.
        when: the date, and what else it was compiled with.
    """
    rows, cases = list(rows), set(cases)
    about = {(row.case, row.target, row.triton) for row in rows}
    before = load(path) if path.exists() else []
    kept = [r for r in before if (r.case, r.target, r.triton) not in about and r.case in cases]
    versions = {row.triton for row in rows}
    notes = [line for line in _notes(path) if line.split()[2].rstrip(":") not in versions]
    notes += [f"{_WITH}{version}: {when}" for version in versions]
    lines = [row.line() for row in sorted([*kept, *rows], key=lambda row: row.key)]
    text = "\n".join([*sorted(notes), header(), *lines])
    path.write_text(f"{_TITLE}{text}\n", "utf-8")


def _notes(path: Path) -> list[str]:
    """The lines that say when a version of Triton was tried."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line.startswith(_WITH)]
