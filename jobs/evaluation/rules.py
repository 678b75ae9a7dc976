"""The rules of a gate, as they are written.

    rule   = NAME [ "[" COLUMN "=" VALUE "]" ] bound      the value of a scorer (in a slice)
           | NAME ":" check { "," check }                 compared with the evaluation of before
    bound  = ( ">=" | ">" | "<=" | "<" ) NUMBER
    check  = "drop<=" NUMBER                              how much lower the value may be
           | "rise<=" NUMBER                              how much higher, where less is better
           | "p<" NUMBER | "p"                            only a change this significant counts

NUMBER may end in a percent sign. Without `drop` and `rise`, `p<0.05` allows no drop at all; with
one of them, a rule is broken only by a change that is too large and significant, too. `p` alone
is `p<` the `alpha` of the gate.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jobs.errors import UsageError
from jobs.evaluation import fields as read
from jobs.records.evaluations import Role

BOUNDS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
_ROUNDING = 1e-12  # what the mean of many scores may be off
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*%?"
_BOUND = re.compile(rf"({NAME})\s*(?:\[([^=\]]+)=(.*)\])?\s*(>=|>|<=|<)\s*({_NUMBER})", re.DOTALL)
_RELATIVE = re.compile(rf"({NAME})\s*:\s*(.+)")
_CHECK = re.compile(rf"(?:(drop|rise)\s*<=|(p)\s*<)\s*({_NUMBER})|(p)")
_FORMS = "NAME>=0.8, NAME[column=value]>=0.8, NAME:drop<=0.02, NAME:p<0.05, NAME:drop<=0.02,p<0.05"


@dataclass(frozen=True, slots=True)
class Bound:
    """What a value must be.

    Attributes:
        slice: column and value of the rows that count; None for all rows.
    """

    text: str
    scorer: str
    compare: str
    limit: float
    slice: tuple[str, str] | None = None

    def holds(self, value: float) -> bool:
        if math.isclose(value, self.limit, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            value = self.limit
        return BOUNDS[self.compare](value, self.limit)


@dataclass(frozen=True, slots=True)
class Change:
    """How far a value may move from that of the evaluation of before.

    Attributes:
        direction: 1 where a rise is bad, -1 where a drop is.
        limit: how far; not negative.
        level: a change counts only if its p-value is under this; None if every one counts.
    """

    text: str
    scorer: str
    direction: int
    limit: float
    level: float | None


Rule = Bound | Change


@dataclass(frozen=True, slots=True)
class GateSpec:
    """What makes an evaluation a regression.

    Attributes:
        against: what rules about changes compare with; None where there is no such rule.
        alpha: the level of significance of rules that name none.
        missing: how many rows a scorer may leave without a score: a number of rows, or as a
            float the share of all rows.
    """

    rules: tuple[Rule, ...] = ()
    against: Role | None = Role.BASELINE
    alpha: float = 0.05
    missing: int | float = 0

    def allowed_missing(self, rows: int) -> int:
        """Of so many rows."""
        if isinstance(self.missing, float):
            return int(Decimal(str(self.missing)) * rows)  # floats make 28.99… of 0.29 of 100
        return self.missing

    @classmethod
    def from_json(cls, value: Any, where: str = "gate") -> GateSpec:
        given = read.an_object(value, where, ("against", "rules", "alpha", "missing"))
        alpha = read.a_number(given.get("alpha", 0.05), f"{where}.alpha", 0, 1)
        if not 0 < alpha < 1:
            raise read.wrong(f"{where}.alpha", alpha, "over 0 and under 1")
        written = read.texts(given.get("rules", []), f"{where}.rules")
        rules = tuple(
            parse_rule(rule, f"{where}.rules[{i}]", alpha) for i, rule in enumerate(written)
        )
        against = given.get("against", str(Role.BASELINE))
        if against is not None:
            against = read.member_of(Role, against, f"{where}.against")
        elif changes := [rule.text for rule in rules if not isinstance(rule, Bound)]:
            raise UsageError(
                f"{where}.against is null, but {changes[0]!r} compares with an earlier "
                'evaluation; set it to "baseline" or "previous"'
            )
        missing = given.get("missing", 0)
        if isinstance(missing, float):
            read.a_number(missing, f"{where}.missing", 0, 1)
        else:
            read.a_whole_number(missing, f"{where}.missing", 0, 2**53)
        return cls(rules, against, alpha, missing)

    def to_json(self) -> dict[str, Any]:
        return {
            "against": None if self.against is None else str(self.against),
            "rules": [rule.text for rule in self.rules],
            "alpha": self.alpha,
            "missing": self.missing,
        }


def parse_rule(text: str, where: str, alpha: float = 0.05) -> Rule:
    """A rule.

    Args:
        alpha: the level of a `p` without a number.

    Raises:
        UsageError: it is none.
    """
    written = text.strip()
    if match := _BOUND.fullmatch(written):
        name, column, value, compare, limit = match.groups()
        part = None if column is None else (column.strip(), value.strip())
        return Bound(written, name, compare, _number(limit), part)
    if match := _RELATIVE.fullmatch(written):
        return _change(written, match[1], match[2], where, alpha)
    raise UsageError(f"{where} is {text!r}, which is no rule; rules are: {_FORMS}")


def _change(text: str, name: str, checks: str, where: str, alpha: float) -> Change:
    limit = level = None
    direction = -1
    for check in checks.split(","):
        match = _CHECK.fullmatch(check.strip())
        if match is None:
            raise UsageError(f"{where} is {text!r}: {check.strip()!r} is no check; rules: {_FORMS}")
        moved, _, number, bare = match.groups()
        value = alpha if bare else _number(number)
        if (limit if moved else level) is not None:
            raise UsageError(f"{where} is {text!r}: it says two times what counts")
        if moved:
            if value < 0:
                raise UsageError(f"{where} is {text!r}: {moved} must be allowed 0 or more")
            limit, direction = value, 1 if moved == "rise" else -1
        else:
            if not 0 < value < 1:
                raise UsageError(f"{where} is {text!r}: p must be compared with 0 < number < 1")
            level = value
    return Change(text, name, direction, limit or 0.0, level)


def _number(text: str) -> float:
    number = float(text.rstrip("%"))
    if text.endswith("%"):
        # As it is written: floats make 0.9990000000000001 of 99.9 / 100.
        number = float(Decimal(str(number)) / 100)
    return number if math.isfinite(number) else math.copysign(1e308, number)
