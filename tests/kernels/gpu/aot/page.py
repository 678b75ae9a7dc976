"""The table in short, as docs/kernels.md has it: one version of Triton, two chips."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.kernels.gpu.aot.row import Row

ROOT = Path(__file__).parents[4]
PATH = ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- compiled: begin -->", "<!-- compiled: end -->"
_HEADER = """\
| call | kernel | warps | registers, sm_80 | sm_90 | shared, sm_80 | sm_90 | products | async |
|---|---|---|---|---|---|---|---|---|
"""


def pinned_version() -> str:
    """Of Triton, in constraints.txt."""
    found = re.search(r"^triton==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    if found is None:
        raise ValueError("constraints.txt pins no triton")
    return found.group(1)


def summary(rows: Iterable[Row]) -> str:
    """The lines of Markdown, a call and kernel each."""
    version = pinned_version()
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        if row.triton == version and row.target in ("sm_80", "sm_90"):
            found.setdefault((row.case, row.kernel), {})[row.target] = row
    return _HEADER + "".join(_line(*key, by_target) for key, by_target in found.items())


def write(rows: Iterable[Row]) -> None:
    """Into the page."""
    before, rest = PATH.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PATH.write_text(f"{before}{BEGIN}\n{summary(rows)}{END}{after}", "utf-8")


def _line(case: str, kernel: str, by_target: dict[str, Row]) -> str:
    def of_both(figure: str) -> str:
        return " | ".join(
            f"{by_target[target].figures.get(figure, 0):,}"
            if target in by_target and not by_target[target].failure
            else "none"
            for target in ("sm_80", "sm_90")
        )

    hopper = by_target.get("sm_90")
    figures = {} if hopper is None else hopper.figures
    products = [f"{figures.get(kind, 0)} {kind}" for kind in ("wgmma", "mma") if figures.get(kind)]
    return (
        f"| {case} | `{kernel}` | {figures.get('warps', '-')} | {of_both('regs')} "
        f"| {of_both('shared')} | {', '.join(products) or '-'} | {figures.get('async') or '-'} |\n"
    )
