"""Parameters that other engines and APIs have, and pagemill has not.

To carry them as data would silently answer another question than the one that was asked. A
value that changes nothing, though, asks for what is done anyway: many programs write all their
parameters into every request, most of them at rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from jobs.errors import RowError

# By name, the values that change nothing. Null is one of each.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "best_of": (1,),  # and as many as `n`
    "chat_template": (),
    "continue_final_message": (False,),
    "do_sample": (),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "mirostat": (0,),
    "no_repeat_ngram_size": (0,),
    "parallel_tool_calls": (True,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stream": (False,),
    "stream_options": (),
    "suffix": ("",),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "typical_p": (1,),
}

# What else there is to say than to leave it out.
_HINTS = {
    "best_of": "n is how many answers a row gets",
    "chat_template": "the template is the model's, and chat_template_kwargs sets its variables",
    "function_call": "tools is the list of functions",
    "functions": "tools is the list of functions",
    "stream": "the answers of a batch are not streamed",
    "top_logprobs": "logprobs is how many of the likeliest tokens are told, such as 5",
}


def check_neutral(key: str, name: str, value: Any, row: Mapping[str, Any], prefix: str) -> None:
    """Take a parameter that we do not have, if its value asks for what is done anyway.

    Args:
        key: the name as the row writes it.
        prefix: `body.` for a parameter in the body of a batch line.

    Raises:
        RowError: `unsupported_parameter`.
    """
    values = UNSUPPORTED.get(name, ())
    if value is None or is_one_of(value, values):
        return
    if name == "best_of" and type(value) is int and value == row.get("n"):
        return
    raise unsupported(key, name, values, prefix)


def is_one_of(value: Any, values: Sequence[Any]) -> bool:
    """Whether it is among them; numbers and booleans, which are equal to Python, are kept apart."""
    return any(isinstance(value, bool) == isinstance(v, bool) and value == v for v in values)


def unsupported(key: str, name: str, neutral: Sequence[Any], prefix: str = "") -> RowError:
    """The error of a parameter that we do not have, but for its `neutral` values."""
    taken = " or ".join(orjson.dumps(value).decode() for value in neutral)
    but = f" but for {taken}, which changes nothing" if taken else ""
    hint = f" ({_HINTS[name]})" if name in _HINTS else ""
    mine = "" if prefix else "; if it is data of yours, rename it"
    return RowError(
        "unsupported_parameter",
        f"pagemill does not support {prefix}{key}{but}; leave it out{hint}{mine}",
        f"{prefix}{key}",
    )
