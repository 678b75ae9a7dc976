"""What a row is, whatever a job says to all rows, and whatever file it is in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

_JSON = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def row_content(
    *,
    custom_id: str | None,
    prompt: bytes | str | None,
    messages: bytes | str | None,
    continuations: bytes | str | None = None,
    system: str | None = None,
    more: Sequence[Any] = (),
    data: Mapping[str, Any] | None = None,
) -> bytes:
    """All of a row, the same for equal rows.

    Args:
        messages, continuations: JSON.
        system: what the job puts before the messages of rows that have no system message.
        data: its other columns; one that is null is as one that is not there.
    """
    asked = None if messages is None else orjson.loads(messages)
    if prompt is not None:
        # A job's system message makes a chat of a bare prompt.
        asked = [{"role": "user", "content": _text(prompt)}]
    elif asked and system is not None and asked[0] == {"role": "system", "content": system}:
        asked = asked[1:]
    whole = [
        custom_id,
        asked,
        None if continuations is None else orjson.loads(continuations),
        [_text(part) for part in more],
        {name: value for name, value in (data or {}).items() if value is not None},
    ]
    return canonical(whole)


def row_key(content: bytes) -> str:
    """By which the rows of two evaluations are paired."""
    return hashlib.sha256(content).hexdigest()


def canonical(value: Any) -> bytes:
    """JSON with sorted keys; what JSON has no form for is told as Python does."""
    return orjson.dumps(value, default=repr, option=_JSON)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
