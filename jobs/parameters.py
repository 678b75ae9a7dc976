"""Sampling parameters of rows and jobs, and their limits.

The limits are those of the engine's sampling parameters. `jobs` does not import the engine, so
they stand here a second time, and a test holds the two together. `n` is ours alone: the worker
asks the engine for n answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from jobs.errors import RowError

MAX_INTEGER = 2**63 - 1  # what JSON, Arrow and SQL all hold
MAX_SEED = MAX_INTEGER
MAX_STOP_STRINGS = 16
MAX_N = 128
MAX_LOGPROBS = 20


def check_parameter(name: str, value: Any, field: str | None = None) -> Any:
    """The value of one sampling parameter, in the form that the engine takes.

    Args:
        field: what the row calls it, if not `name`.

    Raises:
        RowError: `wrong_type`, or `invalid_parameter` where the value is out of its range.
    """
    return CHECKS[name](field or name, value)


def shown(value: object) -> str:
    """A value as an error message may show it: short, whatever it is."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:60]!r}… ({len(value)} characters)"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def wrong_type(field: str, value: object, wanted: str) -> RowError:
    return RowError("wrong_type", f"{field} is {shown(value)}; it must be {wanted}", field)


def invalid_parameter(field: str, value: object, wanted: str) -> RowError:
    return RowError("invalid_parameter", f"{field} is {shown(value)}; it must be {wanted}", field)


def _whole(
    lowest: int, wanted: str, highest: int = MAX_INTEGER, what: str = "an integer"
) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if type(value) is not int:  # bool is an int to Python, and not to us
            raise wrong_type(name, value, what)
        if not lowest <= value <= highest:
            raise invalid_parameter(name, value, wanted)
        return value

    return check


def _finite(name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise wrong_type(name, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise invalid_parameter(name, value, "a finite number")
    return number


def _temperature(name: str, value: Any) -> float:
    number = _finite(name, value)
    if number < 0:
        raise invalid_parameter(name, value, "0 (greedy) or more")
    return number


def _top_p(name: str, value: Any) -> float:
    number = _finite(name, value)
    if not 0 < number <= 1:
        raise invalid_parameter(name, value, "over 0 and at most 1")
    return number


def _stop(name: str, value: Any) -> list[str]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list | tuple):
        raise wrong_type(name, value, "a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise invalid_parameter(
            name, f"{len(strings)} strings", f"at most {MAX_STOP_STRINGS} strings"
        )
    for i, text in enumerate(strings):
        if not isinstance(text, str):
            raise wrong_type(f"{name}[{i}]", text, "a string")
        if not text:
            raise invalid_parameter(
                name if strings is not value else f"{name}[{i}]", text, "not empty"
            )
    return list(strings)


def _stop_token_ids(name: str, value: Any) -> list[int]:
    if not isinstance(value, list | tuple):
        raise wrong_type(name, value, "a list of token ids")
    return [_token_id(f"{name}[{i}]", token) for i, token in enumerate(value)]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(name, value, "true or false")
    return value


_token_id = _whole(0, "a token id, 0 or more")
_LOGPROBS = _whole(
    0,
    f"from 0 to {MAX_LOGPROBS}",
    MAX_LOGPROBS,
    f"an integer from 0 to {MAX_LOGPROBS}: how many of the likeliest tokens are told",
)

CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "max_tokens": _whole(1, "1 or more"),
    "temperature": _temperature,
    "top_k": _whole(0, "0 (all tokens) or more"),
    "top_p": _top_p,
    "seed": _whole(0, "from 0 to 2**63 - 1"),
    "stop": _stop,
    "stop_token_ids": _stop_token_ids,
    "ignore_eos": _flag,
    "n": _whole(1, f"from 1 to {MAX_N}", MAX_N),
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
}
