"""The continuations of a row that is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from jobs.errors import RowError
from jobs.parameters import wrong_type

# Either is taken: evaluations call them choices.
CONTINUATIONS = ("choices", "continuations")
MAX_CONTINUATIONS = 256


def read_continuations(row: Mapping[str, Any]) -> bytes:
    """The row's continuations, as a JSON list of strings.

    Raises:
        RowError: there are none, or they are no list of texts.
    """
    given = [name for name in CONTINUATIONS if row.get(name) is not None]
    if len(given) != 1:
        raise _not_one(bool(given))
    name = given[0]
    texts = row[name]
    if not isinstance(texts, list | tuple):
        raise wrong_type(name, texts, "a list of texts")
    if not 1 <= len(texts) <= MAX_CONTINUATIONS:
        raise RowError(
            "invalid_choices",
            f"{name} has {len(texts)} texts; a row can have 1 to {MAX_CONTINUATIONS}",
            name,
        )
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong_type(f"{name}[{i}]", text, "a string")
        if not text:
            raise RowError("empty_continuation", f"{name}[{i}] is empty", f"{name}[{i}]")
    try:
        return bytes(memoryview(orjson.dumps(list(texts))))
    except TypeError:
        raise RowError("invalid_utf8", f"{name} holds half a surrogate pair", name) from None


def _not_one(both: bool) -> RowError:
    if both:
        return RowError(
            "choices_and_continuations",
            "the row has both choices and continuations, which are the same; leave one of them out",
        )
    return RowError(
        "missing_choices",
        "the row has no choices (or continuations): a list of texts, which a score job needs",
        "choices",
    )
