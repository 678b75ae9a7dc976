"""How long a text becomes by one step of a template, told before the step is taken."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2.exceptions import SecurityError

MAX_NUMBER = 1 << 20  # of an argument: a width, a repeat count
MAX_TEXT = 1 << 20  # characters, or items of a list, that one step may make out of shorter ones
_MAX_WRITTEN = 16 << 20  # characters of a whole value, written down
_MAX_BITS = 4096  # of a number
_MAX_INDENT = 16


def check_operator(operator: str, left: Any, right: Any) -> int:
    """Refuse an operation whose result is too big; otherwise tell its length, if it has one.

    Raises:
        SecurityError: the result would be too big.
    """
    if operator == "**":
        if _is_over(left, MAX_NUMBER) or _is_over(right, 64):
            raise SecurityError("a power with numbers this big is not allowed")
    elif operator == "*":
        for one, other in ((left, right), (right, left)):
            if hasattr(one, "__len__") and isinstance(other, int):
                return _at_most(len(one) * max(0, other), "repeating")
        if _bits(left) + _bits(right) > _MAX_BITS:
            raise SecurityError("a product of numbers this big is not allowed")
    elif operator == "%" and isinstance(left, str | bytes):
        return _check_percent(left, right)
    elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
        return len(left) + len(right)
    return 0


def check_method(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse a method of a text that would make too much of it.

    Raises:
        SecurityError: the result would be too long.
    """
    function = getattr(function, "__wrapped__", function)  # Jinja wraps those that format
    text = getattr(function, "__self__", None)
    if not isinstance(text, str | bytes | int):
        return
    name = getattr(function, "__name__", "")
    values = (*args, *kwargs.values())
    _check_numbers(values)
    if isinstance(text, int):
        return
    if name == "replace" and len(values) >= 2:
        _check_replace(text, values[0], values[1])
    elif name == "join" and values:
        _check_join(values[0], text)
    elif name == "expandtabs":
        tab = b"\t" if isinstance(text, bytes) else "\t"
        width = next((value for value in values if isinstance(value, int)), 8)
        _at_most(text.count(tab) * max(0, width), "expandtabs")  # type: ignore[arg-type]
    elif name == "translate" and values and isinstance(values[0], Mapping):
        longest = max((expanded_length(value) for value in values[0].values()), default=0)
        _at_most(len(text) * longest, "translate")
    elif name in ("format", "format_map"):
        if name == "format_map":
            args, kwargs = (), values[0] if values and isinstance(values[0], Mapping) else {}
        _check_braces(text, args, kwargs)


def check_filter(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a filter that would make too much of what it is given.

    Args:
        args: what it filters, then its arguments.

    Raises:
        SecurityError: the result would be too long.
    """
    value, values = args[0], (*args[1:], *kwargs.values())
    if name in _SIZED:
        _check_numbers(values)
    if isinstance(value, list | tuple | dict) and name in _WRITERS:
        expanded_length(value)
    if name == "replace" and len(values) >= 2:
        _check_replace(value if isinstance(value, str) else str(value), values[0], values[1])
    elif name == "join":
        _check_join(value, values[0] if values else "")
    elif name in ("indent", "wordwrap") and isinstance(value, str):
        lines = value.count("\n") + 1
        if name == "wordwrap":
            lines += len(value)
            values = (1, *(text for text in values if isinstance(text, str)))
        widest = max((v if isinstance(v, int) else expanded_length(v) for v in values), default=4)
        _at_most(lines * widest, name, len(value))
    elif name == "tojson" and any(_is_over(indent, _MAX_INDENT) for indent in values):
        raise SecurityError(f"an indent over {_MAX_INDENT} is not allowed")
    elif name == "format" and isinstance(value, str):
        _check_percent(value, kwargs or tuple(args[1:]))


_SIZED = frozenset({"batch", "center", "indent", "round", "slice", "wordwrap"})
# Filters that write down whatever they are given.
_WRITERS = frozenset(
    {
        *("capitalize", "center", "e", "escape", "forceescape", "format", "indent", "join"),
        *("lower", "pprint", "replace", "safe", "string", "striptags", "title", "tojson"),
        *("trim", "truncate", "upper", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
    }
)


def expanded_length(value: Any) -> int:
    """About how many characters a value takes when it is written down.

    A list that holds another one twice is short in memory, and doubles when it is written.

    Raises:
        SecurityError: more than any step may write.
    """
    return _length(value, {})


def _length(value: Any, known: dict[int, int]) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, list | tuple | dict):
        return _bits(value) // 3 + 1
    if id(value) not in known:
        items = value if not isinstance(value, dict) else (*value, *value.values())
        known[id(value)] = 2 + sum(2 + _length(item, known) for item in items)
        if known[id(value)] > _MAX_WRITTEN:
            raise SecurityError(f"writing over {_MAX_WRITTEN:,} characters is not allowed")
    return known[id(value)]


def _check_numbers(values: Sequence[Any]) -> None:
    if any(_is_over(value, MAX_NUMBER) for value in values):
        raise SecurityError(f"an argument over {MAX_NUMBER:,} is not allowed")


def _check_replace(text: Any, old: Any, new: Any) -> None:
    if isinstance(old, type(text)) and isinstance(new, str | bytes):
        _at_most(text.count(old) * len(new), "replacing", len(text))


def _check_join(values: Any, separator: Any) -> None:
    if hasattr(values, "__len__"):
        _at_most(len(values) * expanded_length(separator), "joining")


def _check_percent(text: str | bytes, values: Any) -> int:
    """`text % values`: each of a tuple is written once, those of an object by their names."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    if "%*" in shown:
        raise SecurityError("a format with a width like this is not allowed")
    if isinstance(values, Mapping):
        values = [values.get(name) for name in re.findall(r"%\(([^)]*)\)", shown)]
    return _check_format(shown, values if isinstance(values, tuple | list) else [values])


def _check_braces(text: str | bytes, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """`text.format(*args, **kwargs)`."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    numbered = itertools.count()
    written, widths = [], 0
    for name in re.findall(r"\{([^{}:!.\[]*)", shown):
        place = int(name) if name.isdecimal() else next(numbered) if not name else -1
        value = args[place] if 0 <= place < len(args) else kwargs.get(name)
        written.append(value)
        if isinstance(value, int) and ":{" in shown:  # it may be a width
            widths += abs(value)
    return _check_format(shown, written, widths)


def _check_format(text: str, written: Sequence[Any], widths: int = 0) -> int:
    numbers = re.findall(r"\d+", text)
    if any(len(number) > 6 for number in numbers):
        raise SecurityError("a format with a width like this is not allowed")
    widths += sum(map(int, numbers))
    return _at_most(len(text) + widths + sum(map(expanded_length, written)), "formatting")


def _at_most(size: int, what: str, allowed: int = 0) -> int:
    if size > max(MAX_TEXT, 2 * allowed):
        raise SecurityError(f"{what} to {size:,} characters or items is not allowed")
    return size


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _is_over(value: object, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) > limit
