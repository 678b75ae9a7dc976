"""The objects of OpenAI's batch output, as its reference documents them, to check lines against.

https://platform.openai.com/docs/api-reference/batch/request-output, …/chat/object and
…/completions/object. Strict: every key must be there, and no other one may be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Check = Callable[[Any, str], None]


def is_a(*types: type) -> Check:
    def check(value: Any, where: str) -> None:
        assert type(value) in types, f"{where} is {value!r}"

    return check


def equal(wanted: Any) -> Check:
    def check(value: Any, where: str) -> None:
        assert value == wanted, f"{where} is {value!r}, not {wanted!r}"
        assert type(value) is type(wanted), f"{where} is {value!r}, not {wanted!r}"

    return check


def one_of(*wanted: str) -> Check:
    def check(value: Any, where: str) -> None:
        assert value in wanted, f"{where} is {value!r}"

    return check


def or_null(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def list_of(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        assert isinstance(value, list), f"{where} is {value!r}"
        for i, item in enumerate(value):
            inner(item, f"{where}[{i}]")

    return check


def map_of(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        assert isinstance(value, dict), f"{where} is {value!r}"
        for key, item in value.items():
            inner(item, f"{where}[{key!r}]")

    return check


def an_object(optional: dict[str, Check] | None = None, **required: Check) -> Check:
    optional = optional or {}

    def check(value: Any, where: str) -> None:
        assert isinstance(value, dict), f"{where} is {value!r}"
        assert required.keys() <= value.keys() <= required.keys() | optional.keys(), (
            f"{where} has {sorted(value)}"
        )
        for key, item in value.items():
            (required | optional)[key](item, f"{where}.{key}")

    return check


def _byte(value: Any, where: str) -> None:
    is_a(int)(value, where)
    assert 0 <= value < 256, where


_STRING, _COUNT, _LOGPROB = is_a(str), is_a(int), is_a(float)
_USAGE = an_object(
    prompt_tokens=_COUNT,
    completion_tokens=_COUNT,
    total_tokens=_COUNT,
    prompt_tokens_details=an_object(cached_tokens=_COUNT),
)
_TOP = {"token": _STRING, "logprob": _LOGPROB, "bytes": or_null(list_of(_byte))}
_CHAT = an_object(
    id=_STRING,
    object=equal("chat.completion"),
    created=_COUNT,
    model=_STRING,
    choices=list_of(
        an_object(
            index=_COUNT,
            message=an_object(role=equal("assistant"), content=_STRING, refusal=equal(None)),
            logprobs=or_null(
                an_object(
                    content=list_of(an_object(**_TOP, top_logprobs=list_of(an_object(**_TOP)))),
                    refusal=equal(None),
                )
            ),
            finish_reason=one_of("stop", "length"),
        )
    ),
    usage=_USAGE,
    system_fingerprint=equal(None),
)
_COMPLETION = an_object(
    id=_STRING,
    object=equal("text_completion"),
    created=_COUNT,
    model=_STRING,
    choices=list_of(
        an_object(
            index=_COUNT,
            text=_STRING,
            logprobs=or_null(
                an_object(
                    tokens=list_of(_STRING),
                    token_logprobs=list_of(_LOGPROB),
                    top_logprobs=list_of(map_of(_LOGPROB)),
                    text_offset=list_of(_COUNT),
                )
            ),
            finish_reason=one_of("stop", "length"),
        )
    ),
    usage=_USAGE,
    system_fingerprint=equal(None),
)
_ERROR = an_object({"line": _COUNT, "param": _STRING}, code=_STRING, message=_STRING)


def _body(value: Any, where: str) -> None:
    (_CHAT if value["object"] == "chat.completion" else _COMPLETION)(value, where)
    usage = value["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], where
    assert [c["index"] for c in value["choices"]] == list(range(len(value["choices"]))), where


_LINE = an_object(
    id=_STRING,
    custom_id=_STRING,
    response=or_null(an_object(status_code=equal(200), request_id=_STRING, body=_body)),
    error=or_null(_ERROR),
)


def check_line(line: Any) -> None:
    """See that a line has the documented shape: an answer or an error, never both."""
    _LINE(line, "line")
    assert (line["response"] is None) != (line["error"] is None), line
