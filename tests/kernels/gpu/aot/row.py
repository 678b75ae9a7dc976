"""A row of the table: what a kernel of a case was compiled to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# In the order of the columns; docs/kernels.md says what they are.
FIGURES = (
    "warps", "stages", "regs", "stack", "spills", "local", "shared", "mma", "wgmma", "async",
    "ld16", "ld8", "ld4", "ld1", "bar", "mufu", "instr",
)  # fmt: skip
_WIDTHS = {"case": 44, "kernel": 36, "target": 7, "triton": 7}
_FAILED = "does not compile: "


@dataclass(frozen=True)
class Row:
    """What one kernel became.

    Attributes:
        kernel: its name; `#2` and so on where a case compiles it with several constants.
        triton: the version.
        figures: by FIGURES; those that are missing are 0. Empty where it does not compile.
        failure: why not.
    """

    case: str
    kernel: str
    target: str
    triton: str
    figures: Mapping[str, int]
    failure: str = ""

    @classmethod
    def of_failure(cls, case: str, target: str, triton: str, reason: str) -> Row:
        return cls(case, "-", target, triton, {}, reason)

    @property
    def key(self) -> tuple[str, str, int, str, tuple[int, ...]]:
        """Sorts cases and kernels by name, chips by age, versions by number."""
        version = tuple(int(part) for part in self.triton.split(".")[:3])
        cuda = self.target.startswith("sm_")
        return self.case, self.kernel, int(self.target[3:]) if cuda else 1000, self.target, version

    def line(self) -> str:
        names = (self.case, self.kernel, self.target, self.triton)
        text = " ".join(
            f"{name:<{width}}" for name, width in zip(names, _WIDTHS.values(), strict=True)
        )
        if self.failure:
            return f"{text} {_FAILED}{self.failure}"
        return f"{text} " + " ".join(
            f"{self.figures.get(name, 0):>{_width(name)}}" for name in FIGURES
        )


def header() -> str:
    names = " ".join(f"{name:<{width}}" for name, width in _WIDTHS.items())
    return f"{names} " + " ".join(f"{name:>{_width(name)}}" for name in FIGURES)


def parse(line: str) -> Row:
    """The row of a line that `Row.line` wrote."""
    columns, at = [], 0
    for width in _WIDTHS.values():
        columns.append(line[at : at + width].strip())
        at += width + 1
    case, kernel, target, triton = columns
    rest = line[at:]
    if rest.startswith(_FAILED):
        return Row.of_failure(case, target, triton, rest.removeprefix(_FAILED))
    values = (int(number) for number in rest.split())
    return Row(case, kernel, target, triton, dict(zip(FIGURES, values, strict=True)))


def _width(figure: str) -> int:
    return max(6 if figure in ("shared", "instr") else 4, len(figure))
