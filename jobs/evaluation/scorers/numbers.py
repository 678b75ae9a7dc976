"""`numeric`: the number that an answer ends with is the target."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jobs.evaluation.rows import Score, ScoredRow, accepted, as_text, brief, missing
from jobs.evaluation.scorers.base import RowScorer
from jobs.evaluation.scorers.bounded import MAX_CHARACTERS
from jobs.evaluation.scorers.markers import boxed

# Of two floats that were written in different ways, such as 12.34% and 0.1234.
_ROUNDING = 1e-9
_MAX_DIGITS = 300  # of an integer that is compared exactly


class Number(NamedTuple):
    """A number as it was written.

    Attributes:
        value: an int where that is what it is.
        percent: it has a percent sign, which `value` takes no account of.
    """

    text: str
    value: int | float
    percent: bool = False


@dataclass(frozen=True, kw_only=True)
class Numeric(RowScorer):
    """The last number of the answer is the target.

    Attributes:
        tolerance: how far off it may be.
        relative: how far off it may be, as a share of the target.
        take: which number of the answer counts.
        decimal: what separates decimals; the other one of the two separates thousands.
    """

    name = "numeric"
    summary = "the last number of the answer is the target"
    tolerance: float = 0.0
    relative: float = 0.0
    take: Literal["last", "first"] = "last"
    decimal: Literal[".", ","] = "."

    def __post_init__(self) -> None:
        for name in ("tolerance", "relative"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}; it must be 0 or more")

    def score_answer(self, row: ScoredRow) -> Score:
        if row.answer is None:
            return missing("no answer")
        targets = [self._target(target) for target in accepted(row.target)]
        if all(target is None for target in targets):
            return missing("the target has no number")
        number = self.found(row.answer)
        if number is None:
            return Score(0.0, "no number")
        fits = any(target is not None and self._fits(number, target) for target in targets)
        return Score(float(fits), brief(number.text))

    def found(self, text: str) -> Number | None:
        """The number of a text that counts: of what is boxed, if there is such a number."""
        text = text[-MAX_CHARACTERS:]
        inside = boxed(text)
        if inside is not None and (number := self._of(inside)) is not None:
            return number
        return self._of(text)

    def _of(self, text: str) -> Number | None:
        pattern = _PATTERNS[self.decimal]
        if self.take == "first":
            match = pattern.search(text)
        else:
            match = None
            for match in pattern.finditer(text):  # noqa: B007
                pass
        return None if match is None else _number(match, self.decimal)

    def _target(self, target: Any) -> Number | None:
        match target:
            case bool() | Mapping():
                return None
            case int() | float() if math.isfinite(target):
                whole = isinstance(target, float) and target.is_integer()
                return Number(str(target), int(target) if whole else target)
            case float():  # nan and the infinities
                return None
        return self.found(as_text(target))

    def _fits(self, number: Number, target: Number) -> bool:
        if self._near(number.value, target.value):
            return True
        # Of 12% and 0.12 either may be the target of the other.
        if number.percent is target.percent:
            return False
        if number.percent:
            return self._near(number.value / 100, target.value)
        return self._near(number.value, target.value / 100)

    def _near(self, value: float, target: float) -> bool:
        exact = isinstance(value, int) and isinstance(target, int)
        allowed = max(self.tolerance, self.relative * abs(target))
        if not exact:
            allowed = max(allowed, _ROUNDING * abs(target))
        return math.isfinite(value) and abs(value - target) <= allowed < math.inf


# A dash right after a number or a bracket takes from it, and is no sign.
def _pattern(decimal: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    # Groups of three digits; the spaces are those that set numbers: no-break, thin and narrow.
    thousands = f"[{'.' if decimal == ',' else ','}_'\u2019\u00a0\u2009\u202f]"
    digits = rf"\d{{1,3}}(?:{thousands}\d{{3}})+(?!\d)|\d+"
    return re.compile(
        rf"""
        (?=[-+\u2212\\$\u20ac\u00a3\u00a5{point}\d\u00bc-\u00be\u2150-\u215e])(?<![\w{point}])
        (?P<sign>(?<![)\]}}])[-+\u2212])?
        (?:\\?[$\u20ac\u00a3\u00a5]\s?(?P<late>[-\u2212])?)?
        (?:
            \\[dt]?frac\s?\{{\s*(?P<top>\d{{1,15}})\s*\}}\s?\{{\s*(?P<bottom>\d{{1,15}})\s*\}}
          | (?:(?P<whole>\d{{1,15}})\s)?(?<!/)(?P<over>\d{{1,15}})
            \s?[/\u2044]\s?(?P<under>\d{{1,15}})(?![\d/{point}])
          | (?P<times>\d{{1,15}})?\s?(?P<vulgar>[\u00bc-\u00be\u2150-\u215e])
          | (?P<digits>{digits})?(?P<decimals>{point}\d+)?(?<=\d)
            (?:[eE](?P<exponent>[-+]?\d{{1,4}})(?![\w])
              |\s?(?:\u00d7|\\times|\*|\\cdot)\s?10(?:\^\{{?(?P<power>[-+\u2212]?\d{{1,4}})\}}?
              |\*\*(?P<raised>-?\d{{1,4}}))
            )?
        )
        (?:\s?\\?(?P<percent>%))?
        """,
        re.VERBOSE,
    )


_PATTERNS = {decimal: _pattern(decimal) for decimal in (".", ",")}


def _number(match: re.Match[str], decimal: str) -> Number:
    part = match.groupdict()
    value = _size(part)
    negative = part["sign"] in ("-", "\u2212") or part["late"] is not None
    return Number(match[0].strip(), -value if negative else value, part["percent"] is not None)


def _size(part: dict[str, str | None]) -> int | float:
    for top, bottom, whole in (("top", "bottom", None), ("over", "under", "whole")):
        above, below = part[top], part[bottom]
        if above is not None and below is not None:
            before = int(part[whole] or 0) if whole else 0
            return before + int(above) / int(below) if int(below) else math.inf
    if part["vulgar"] is not None:
        return int(part["times"] or 0) + unicodedata.numeric(part["vulgar"])
    digits = re.sub(r"\D", "", part["digits"] or "0")
    power = part["exponent"] or part["power"] or part["raised"]
    if part["decimals"] is None and power is None and len(digits) <= _MAX_DIGITS:
        return int(digits)
    decimals = part["decimals"] or ".0"
    return float(f"{digits}.{decimals[1:]}e{(power or '0').replace(chr(0x2212), '-')}")
