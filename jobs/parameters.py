"""Sampling parameters of rows and jobs: their limits, and what a key of a row means.

The limits are those of the engine's sampling parameters. `jobs` does not import the engine, so
they stand here a second time, and a test holds the two together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from jobs.errors import RowError, UsageError

MAX_SEED = 2**63 - 1
_MAX_INTEGER = 2**63 - 1  # what JSON, Arrow and SQL all hold
MAX_STOP_STRINGS = 16


class Kind(Enum):
    """What a top-level key of a row, or a column, is to us."""

    PROMPT = "prompt"
    MESSAGES = "messages"
    CUSTOM_ID = "custom_id"
    PARAMETER = "parameter"
    UNSUPPORTED = "unsupported"  # a parameter of the field that we do not have yet
    MISSPELT = "misspelt"  # so near to one of our names that ignoring it would be wrong
    DATA = "data"  # the user's own: carried to the output


@dataclass(frozen=True, slots=True)
class Meaning:
    """The verdict on a key; `near` is the name that a misspelt key probably meant."""

    kind: Kind
    near: str | None = None


# Parameters that other engines and APIs know. Carrying them as data would silently answer
# another question than the one that was asked.
UNSUPPORTED = frozenset(
    {
        "add_generation_prompt",
        "allowed_token_ids",
        "bad_words",
        "bad_words_ids",
        "best_of",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "do_sample",
        "early_stopping",
        "echo",
        "frequency_penalty",
        "function_call",
        "functions",
        "include_stop_str_in_output",
        "json_schema",
        "length_penalty",
        "logit_bias",
        "logprobs",
        "min_p",
        "min_tokens",
        "mirostat",
        "n",
        "no_repeat_ngram_size",
        "num_beams",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_logprobs",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "skip_special_tokens",
        "stream",
        "stream_options",
        "structured_outputs",
        "suffix",
        "tool_choice",
        "tools",
        "top_logprobs",
        "truncate_prompt_tokens",
        "typical_p",
        "use_beam_search",
    }
)

# Names that other engines give to parameters of ours.
_ALIASES = {
    "max_completion_tokens": "max_tokens",
    "max_gen_len": "max_tokens",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "temp": "temperature",
    "random_seed": "seed",
    "stop_sequence": "stop",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "stop_words": "stop",
    "eos_token_id": "stop_token_ids",
    "stop_ids": "stop_token_ids",
    "stop_tokens": "stop_token_ids",
}
_OWN = {"prompt": Kind.PROMPT, "messages": Kind.MESSAGES, "custom_id": Kind.CUSTOM_ID}
_LONGEST_NAME = 64  # a longer key is no slip of the pen


@lru_cache(maxsize=4096)  # files repeat their keys; the bound is for files that do not
def meaning(key: str) -> Meaning:
    """What `key` is, by its name alone."""
    if key in _OWN:
        return Meaning(_OWN[key])
    if key in CHECKS:
        return Meaning(Kind.PARAMETER)
    if len(key) > _LONGEST_NAME:
        return Meaning(Kind.DATA)
    folded = _fold(key)
    if folded.startswith("guided") and folded != "guided":
        return Meaning(Kind.UNSUPPORTED)
    known = _FOLDED.get(folded)
    if known in UNSUPPORTED:
        return Meaning(Kind.UNSUPPORTED)
    near = known or _misspelt_parameter(key, folded)
    return Meaning(Kind.MISSPELT, near) if near else Meaning(Kind.DATA)


def check_parameter(name: str, value: Any) -> Any:
    """The value of one sampling parameter, in the form that the engine takes.

    Raises:
        RowError: `wrong_type`, or `invalid_parameter` where the value is out of its range.
    """
    return CHECKS[name](name, value)


def check_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that a job gives to all its rows; None means not set.

    Raises:
        UsageError: an unknown parameter, or a value that no row could have either.
    """
    checked = {}
    for name, value in sampling.items():
        found = meaning(name)
        if found.kind is not Kind.PARAMETER:
            hint = f"did you mean {found.near}?" if found.near else f"known: {', '.join(CHECKS)}"
            raise UsageError(f"{name!r} is no sampling parameter; {hint}")
        if value is None:
            continue
        try:
            checked[name] = check_parameter(name, value)
        except RowError as error:
            raise UsageError(str(error)) from None
    return checked


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


def _invalid(field: str, value: object, wanted: str) -> RowError:
    return RowError("invalid_parameter", f"{field} is {shown(value)}; it must be {wanted}", field)


def _whole(lowest: int, wanted: str) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if type(value) is not int:  # bool is an int to Python, and not to us
            raise wrong_type(name, value, "an integer")
        if not lowest <= value <= _MAX_INTEGER:
            raise _invalid(name, value, wanted)
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
        raise _invalid(name, value, "a finite number")
    return number


def _temperature(name: str, value: Any) -> float:
    number = _finite(name, value)
    if number < 0:
        raise _invalid(name, value, "0 (greedy) or more")
    return number


def _top_p(name: str, value: Any) -> float:
    number = _finite(name, value)
    if not 0 < number <= 1:
        raise _invalid(name, value, "over 0 and at most 1")
    return number


def _stop(name: str, value: Any) -> list[str]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list | tuple):
        raise wrong_type(name, value, "a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise _invalid(name, f"{len(strings)} strings", f"at most {MAX_STOP_STRINGS} strings")
    for i, text in enumerate(strings):
        if not isinstance(text, str):
            raise wrong_type(f"{name}[{i}]", text, "a string")
        if not text:
            raise _invalid(name if strings is not value else f"{name}[{i}]", text, "not empty")
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

CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "max_tokens": _whole(1, "1 or more"),
    "temperature": _temperature,
    "top_k": _whole(0, "0 (all tokens) or more"),
    "top_p": _top_p,
    "seed": _whole(0, "from 0 to 2**63 - 1"),
    "stop": _stop,
    "stop_token_ids": _stop_token_ids,
    "ignore_eos": _flag,
}


def _fold(key: str) -> str:
    """The key without case and separators: `maxTokens`, `max-tokens` and `MAX_TOKENS` are one."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


_FOLDED = {_fold(name): name for name in (*UNSUPPORTED, *_OWN, *CHECKS)} | {
    _fold(alias): name for alias, name in _ALIASES.items()
}


def _misspelt_parameter(key: str, folded: str) -> str | None:
    for name in CHECKS:
        target = _fold(name)
        # Four letters are too few for guesses: `need` is not a misspelt `seed`.
        allowed = 0 if len(target) < 5 else 1 if len(target) < 9 else 2
        if allowed == 0 or abs(len(folded) - len(target)) > allowed:
            continue
        # More words than the name has: `temperature_c` is somebody's column of its own.
        if len(re.findall(r"[A-Za-z0-9]+", key)) > name.count("_") + 1:
            continue
        if _edits(folded, target) <= allowed:
            return name
    return None


def _edits(a: str, b: str) -> int:
    """Optimal string alignment distance: insertions, deletions, substitutions, swaps."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
