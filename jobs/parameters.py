"""Sampling parameters of rows and jobs, and their limits.

The limits are those of the engine's sampling parameters. `jobs` does not import the engine, so
they stand here a second time, and a test holds the two together. `n` and `use_beam_search` are ours
alone: the worker asks the engine for n answers, or for the n best of a search.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from jobs.errors import RowError

MAX_INTEGER = 2**63 - 1  # what JSON, Arrow and SQL all hold
MAX_SEED = MAX_INTEGER
MAX_STOP_STRINGS = 16
MAX_N = 128
MAX_LOGPROBS = 20
MAX_BIAS = 100
MAX_BIASED_TOKENS = 1024
MAX_ALLOWED_TOKENS = 65_536
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
REPETITION_PENALTIES = (0.01, 100)
OPENAI_PENALTIES = (-2, 2)
MAX_BEAMS = 64
MAX_LENGTH_PENALTY = 10


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


def read_json(value: Any, field: str, *, keys_once: bool = False) -> Any:
    """The value, or where it is a string, what that says as JSON: many tables hold it so.

    Args:
        keys_once: refuse an object that has a key twice, of which a parser keeps one in silence.

    Raises:
        RowError: `invalid_json`, `duplicate_key`.
    """
    if not isinstance(value, str):
        return value
    try:
        read = orjson.loads(value)
        twice = _repeated_key(value, read) if keys_once and isinstance(read, dict) else None
    except orjson.JSONDecodeError as error:
        raise RowError("invalid_json", f"{field} is not JSON: {error.msg}", field) from None
    except RecursionError:
        raise RowError("nesting_too_deep", f"{field} is nested too deep", field) from None
    if twice is not None:
        raise RowError("duplicate_key", f"{field} has the key {shown(twice)} twice", field)
    return read


def _repeated_key(text: str, found: Mapping[str, Any]) -> str | None:
    """A key that the outermost object has twice. Few texts need the second look."""
    if "\\" not in text and all(text.count(f'"{key}"') == 1 for key in found):
        return None
    pairs = json.loads(text, object_pairs_hook=list)
    return next((key for key, times in Counter(k for k, _ in pairs).items() if times > 1), None)


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


def _number(low: float, high: float, wanted: str) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        number = _finite(name, value)
        if not low <= number <= high:
            raise invalid_parameter(name, value, wanted)
        return number

    return check


def _top_p(name: str, value: Any) -> float:
    number = _finite(name, value)
    if not 0 < number <= 1:
        raise invalid_parameter(name, value, "over 0 and at most 1")
    return number


def _length_penalty(name: str, value: Any) -> float:
    number = _finite(name, value)
    if abs(number) > MAX_LENGTH_PENALTY:
        raise invalid_parameter(name, value, f"from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}")
    return number


def _early_stopping(name: str, value: Any) -> bool | str:
    if not isinstance(value, bool | str):
        raise wrong_type(name, value, 'true, false or "never"')
    if isinstance(value, str) and value != "never":
        raise invalid_parameter(name, value, 'true, false or "never"')
    return value


def _strings(most: int) -> Callable[[str, Any], list[str]]:
    def check(name: str, value: Any) -> list[str]:
        strings = [value] if isinstance(value, str) else value
        if not isinstance(strings, list | tuple):
            raise wrong_type(name, value, "a string or a list of strings")
        if len(strings) > most:
            raise invalid_parameter(name, f"{len(strings)} strings", f"at most {most} strings")
        for i, text in enumerate(strings):
            field = f"{name}[{i}]" if strings is value else name
            if not isinstance(text, str):
                raise wrong_type(field, text, "a string")
            if not text:
                raise invalid_parameter(field, text, "not empty")
        return list(strings)

    return check


def _token_ids(
    fewest: int = 0, most: int | None = None, what: str = "a list of token ids"
) -> Callable[[str, Any], list[int]]:
    def check(name: str, value: Any) -> list[int]:
        if not isinstance(value, list | tuple):
            raise wrong_type(name, value, what)
        if len(value) < fewest or (most is not None and len(value) > most):
            raise invalid_parameter(
                name, f"{len(value)} token ids", f"{fewest} to {most} token ids"
            )
        return [_token_id(f"{name}[{i}]", token) for i, token in enumerate(value)]

    return check


def _bad_words_ids(name: str, value: Any) -> list[list[int]]:
    if not isinstance(value, list | tuple):
        raise wrong_type(name, value, "a list of lists of token ids")
    if len(value) > MAX_BAD_WORDS:
        raise invalid_parameter(name, f"{len(value)} lists", f"at most {MAX_BAD_WORDS} lists")
    return [_bad_word(f"{name}[{i}]", word) for i, word in enumerate(value)]


def _logit_bias(name: str, value: Any) -> dict[str, float]:
    value = read_json(value, name)
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, 'an object of token ids, such as {"50256": -100}')
    if len(value) > MAX_BIASED_TOKENS:
        raise invalid_parameter(
            name, f"{len(value)} token ids", f"at most {MAX_BIASED_TOKENS} token ids"
        )
    # Columns of Parquet hold a null where a row does not name a token.
    given = {token: bias for token, bias in value.items() if bias is not None}
    return {_written_id(name, token): _bias(f"{name}.{token}", v) for token, v in given.items()}


def _written_id(name: str, token: str) -> str:
    if not (token.isascii() and token.isdigit() and len(token) <= 10 and str(int(token)) == token):
        raise RowError(
            "invalid_parameter",
            f"{name} has a key {shown(token)}; its keys must be token ids, 0 or more",
            name,
        )
    return token


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
_bad_word = _token_ids(1, MAX_BAD_WORD_TOKENS)
_bias = _number(-MAX_BIAS, MAX_BIAS, f"from -{MAX_BIAS} to {MAX_BIAS}")
_penalty = _number(*OPENAI_PENALTIES, "from {} to {}".format(*OPENAI_PENALTIES))

CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "max_tokens": _whole(1, "1 or more"),
    "temperature": _number(0, math.inf, "0 (greedy) or more"),
    "top_k": _whole(0, "0 (all tokens) or more"),
    "top_p": _top_p,
    "min_p": _number(0, 1, "from 0 to 1"),
    "seed": _whole(0, "from 0 to 2**63 - 1"),
    "repetition_penalty": _number(
        *REPETITION_PENALTIES, "from {} to {}".format(*REPETITION_PENALTIES)
    ),
    "presence_penalty": _penalty,
    "frequency_penalty": _penalty,
    "logit_bias": _logit_bias,
    "allowed_token_ids": _token_ids(1, MAX_ALLOWED_TOKENS),
    "bad_words": _strings(MAX_BAD_WORDS),
    "bad_words_ids": _bad_words_ids,
    "min_tokens": _whole(0, "0 or more"),
    "stop": _strings(MAX_STOP_STRINGS),
    "include_stop_str_in_output": _flag,
    "stop_token_ids": _token_ids(),
    "ignore_eos": _flag,
    "n": _whole(1, f"from 1 to {MAX_N}", MAX_N),
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
    "use_beam_search": _flag,
    "num_beams": _whole(1, f"from 1 to {MAX_BEAMS}", MAX_BEAMS),
    "length_penalty": _length_penalty,
    "early_stopping": _early_stopping,
}
