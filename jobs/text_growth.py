"""How much one step of a template makes, or walks through, told before the step is taken."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, MappingView, Sequence
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

MAX_NUMBER = 1 << 20  # of an argument: a width, a repeat count
MAX_TEXT = 1 << 20  # characters, or items of a list, that one step may make out of shorter ones
_MAX_WRITTEN = 32 << 20  # characters of a whole value, written down
_MAX_ITEMS = 1 << 17  # of a list that is put in order
_MAX_WRAPPED = 1 << 20  # characters
_MAX_SLOW = 1 << 16  # characters for a filter whose time grows faster than its text
_MAX_BITS = 4096  # of a number
_MAX_INDENT = 16


def check_operator(operator: str, left: Any, right: Any) -> int:
    """Refuse an operation whose result is too big; otherwise tell its length, if it has one.

    Raises:
        SecurityError: the result would be too big.
    """
    if max(_bits(left), _bits(right)) > _MAX_BITS:
        raise SecurityError("arithmetic with numbers this big is not allowed")
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


def check_result(result: Any) -> int:
    """Tell how long a result is, with the texts that stand in it.

    Raises:
        SecurityError: it is a number that is too big to go on with.
    """
    if isinstance(result, str | bytes):
        return len(result)
    if isinstance(result, list | tuple):
        return len(result) + sum(len(item) for item in result if isinstance(item, str | bytes))
    if _bits(result) > _MAX_BITS:
        raise SecurityError("a number this big is not allowed")
    return len(result) if isinstance(result, dict) else 0


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
    elif name == "striptags":
        _check_slow(name, text)
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
    if is_container(value) and name in _WRITERS:
        expanded_length(value)
    if name in _SLOW:
        _check_slow(name, value)
    elif name in _ORDERING and hasattr(value, "__len__") and len(value) > _MAX_ITEMS:
        raise SecurityError(f"{name} of over {_MAX_ITEMS:,} items is not allowed")
    if name == "replace" and len(values) >= 2:
        _check_replace(value if isinstance(value, str) else str(value), values[0], values[1])
    elif name == "join":
        _check_join(value, values[0] if values else "")
    elif name in ("indent", "wordwrap") and isinstance(value, str):
        lines = value.count("\n") + 1
        if name == "wordwrap":
            _check_words(value, min((v for v in values if isinstance(v, int)), default=79))
            lines += len(value)
            values = (1, *(text for text in values if isinstance(text, str)))
        widest = max((v if isinstance(v, int) else expanded_length(v) for v in values), default=4)
        _at_most(lines * widest, name, len(value))
    elif name == "tojson" and any(map(_is_wide, values)):
        raise SecurityError(f"an indent or a separator over {_MAX_INDENT} is not allowed")
    elif name == "sum" and any(map(_is_long, values)):
        raise SecurityError("a sum of anything but numbers is not allowed")
    elif name == "format" and isinstance(value, str):
        _check_percent(value, kwargs or tuple(args[1:]))


_SLOW = frozenset({"pprint", "striptags", "urlize", "xmlattr"})
_ORDERING = frozenset({"dictsort", "groupby", "max", "min", "sort", "unique"})
_SIZED = frozenset({"batch", "center", "indent", "round", "slice", "wordwrap"})
# Filters that write down whatever they are given.
_WRITERS = frozenset(
    {
        *("capitalize", "center", "e", "escape", "forceescape", "format", "indent", "join"),
        *("lower", "pprint", "replace", "safe", "string", "striptags", "title", "tojson"),
        *("trim", "truncate", "upper", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
    }
)


def is_container(value: Any) -> bool:
    return isinstance(value, list | tuple | dict | MappingView | Namespace)


def expanded_length(value: Any) -> int:
    """About how many characters a value takes when it is written down, or compared to its end.

    A list that holds another one twice is short in memory, and doubles when it is written.

    Raises:
        SecurityError: more than any step may write.
    """
    return _length(value, {})


def _length(value: Any, known: dict[int, int]) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if not is_container(value):
        return _bits(value) // 3 + 1
    if id(value) not in known:
        if isinstance(value, Namespace):
            value = object.__getattribute__(value, "_Namespace__attrs")
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


def _check_slow(name: str, value: Any) -> None:
    if expanded_length(value) > _MAX_SLOW:
        raise SecurityError(f"{name} of over {_MAX_SLOW:,} characters is not allowed")


def _check_words(text: str, width: int) -> None:
    """A word that is cut into lines is copied once for each of them."""
    longest = max(map(len, text.split()), default=0)
    if len(text) > _MAX_WRAPPED or longest * longest // max(1, width) > _MAX_WRITTEN * 8:
        raise SecurityError("wrapping a text or a word this long is not allowed")


def _at_most(size: int, what: str, allowed: int = 0) -> int:
    if size > max(MAX_TEXT, 2 * allowed):
        raise SecurityError(f"{what} to {size:,} characters or items is not allowed")
    return size


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _is_over(value: object, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) > limit


def _is_wide(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_wide, value))
    return _is_over(len(value) if isinstance(value, str) else value, _MAX_INDENT)


def _is_long(value: object) -> bool:
    return isinstance(value, list | tuple | str | bytes)
