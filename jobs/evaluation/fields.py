"""Reading the JSON of a specification: what is unknown, or of another type, is refused by name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from jobs.errors import UsageError
from jobs.parameters import shown

_Member = TypeVar("_Member", bound=StrEnum)


def wrong(where: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{where} is {shown(value)}; it must be {wanted}")


def an_object(value: Any, where: str, known: Collection[str] | None = None) -> Mapping[str, Any]:
    """A JSON object.

    Args:
        known: the keys that it may have; None allows every key.

    Raises:
        UsageError: it is none, or has another key.
    """
    if not isinstance(value, Mapping):
        raise wrong(where, value, "an object")
    for name in value:
        if known is not None and name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
            raise UsageError(f"{where} has no field {name!r}; {hint}")
    return value


def a_text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(where, value, "a text that is not empty")
    return value


def texts(value: Any, where: str) -> tuple[str, ...]:
    """A list of different texts."""
    if not isinstance(value, list | tuple):
        raise wrong(where, value, "a list of texts")
    found = [a_text(item, f"{where}[{i}]") for i, item in enumerate(value)]
    for i, item in enumerate(found):
        if item in found[:i]:
            raise UsageError(f"{where}[{i}] is {item!r} a second time")
    return tuple(found)


def a_number(value: Any, where: str, low: float = -math.inf, high: float = math.inf) -> float:
    if type(value) not in (int, float):  # bool is an int to Python, and not to us
        raise wrong(where, value, "a number")
    if not (math.isfinite(value) and low <= value <= high):
        raise wrong(where, value, _range(low, high))
    return float(value)


def a_whole_number(value: Any, where: str, low: int, high: int) -> int:
    if type(value) is not int:
        raise wrong(where, value, "a whole number")
    if not low <= value <= high:
        raise wrong(where, value, _range(low, high))
    return value


def one_of(value: Any, where: str, known: Sequence[Any]) -> Any:
    # 1 is not true, and 0 is not false.
    if not any(value == item and type(value) is type(item) for item in known):
        raise wrong(where, value, f"one of {', '.join(map(shown, known))}")
    return value


def member_of(kind: type[_Member], value: Any, where: str) -> _Member:
    """A member of an enumeration, by its value."""
    return kind(one_of(value, where, [str(member) for member in kind]))


def _range(low: float, high: float) -> str:
    if math.isinf(high):
        return "a finite number" if math.isinf(low) else f"{low:g} or more"
    return f"from {low:g} to {high:g}"
