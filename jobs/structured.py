"""Structured output: what OpenAI's API and vLLM call it, brought into one form.

The form is `{"kind": …, "text": …, "field": …}`, or None where any text will do. Whether a schema
or an expression can be used is found out by the engine: `jobs` has no library for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from jobs.errors import RowError
from jobs.parameters import invalid_parameter, read_json, shown, wrong_type

# By the names that rows use; a row has at most one of them.
NAMES = ("response_format", "structured_outputs", "json_schema")
# What the normalized copy calls it.
GRAMMAR = "grammar"
# As the engine has it; a test holds the two together.
MAX_GRAMMAR_BYTES = 1 << 20

_RESPONSE_TYPES = ("text", "json_object", "json_schema")
_SCHEMA_KEYS = frozenset({"name", "description", "schema", "strict"})
_ANY_OBJECT = {"type": "object"}
# Of vLLM, with the values that change nothing.
_OPTIONS = {
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
    "disable_fallback": False,
}


def check_grammar(given: Mapping[str, Any], prefix: str = "") -> dict[str, str] | None:
    """What a row asks its answer to be.

    Args:
        given: the values of those of `NAMES` that it has, at least one.
        prefix: `body.` for a line of a batch file.

    Raises:
        RowError: `invalid_parameter`, `wrong_type`, `invalid_json`, `missing_field`,
            `unknown_field`, `unsupported_parameter` or `grammar_too_large`, with the field.
    """
    if len(given) > 1:
        first, second = sorted(given)[:2]
        raise RowError(
            "invalid_parameter",
            f"there are both {prefix}{first} and {prefix}{second}; leave one of them out",
            f"{prefix}{second}",
        )
    ((name, value),) = given.items()
    return _CHECKS[name](prefix + name, read_json(value, prefix + name))


def _response_format(field: str, value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        raise wrong_type(field, value, 'an object, such as {"type": "json_object"}')
    kind = value.get("type")
    if kind not in _RESPONSE_TYPES:
        raise invalid_parameter(f"{field}.type", kind, f"one of {', '.join(_RESPONSE_TYPES)}")
    if kind == "text":
        return None
    if kind == "json_object":  # with a schema, as llama.cpp's server has it
        schema = value.get("schema")
        return _schema(field if schema is None else f"{field}.schema", schema or _ANY_OBJECT)
    field, wrapped = f"{field}.json_schema", value.get("json_schema")
    if not isinstance(wrapped, dict):
        raise wrong_type(field, wrapped, 'an object, {"name": …, "schema": …}')
    _refuse_others(field, wrapped, _SCHEMA_KEYS)
    if wrapped.get("schema") is None:
        raise RowError("missing_field", f"{field} has no schema", f"{field}.schema")
    return _schema(f"{field}.schema", wrapped["schema"])


def _structured_outputs(field: str, value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        raise wrong_type(field, value, f"an object with one of {', '.join(_OUTPUTS)}")
    _refuse_others(field, value, _OUTPUTS.keys() | _OPTIONS.keys())
    for name, neutral in _OPTIONS.items():
        if value.get(name) not in (None, neutral):
            raise RowError(
                "unsupported_parameter",
                f"pagemill does not support {field}.{name}; leave it out",
                f"{field}.{name}",
            )
    asked = [name for name in _OUTPUTS if value.get(name) not in (None, False)]
    if len(asked) > 1:
        raise RowError(
            "invalid_parameter",
            f"{field} has {' and '.join(asked)}; an answer can only be one of them",
            f"{field}.{asked[1]}",
        )
    return _OUTPUTS[asked[0]](f"{field}.{asked[0]}", value[asked[0]]) if asked else None


def _schema(field: str, value: Any) -> dict[str, str]:
    schema = read_json(value, field)
    if not isinstance(schema, dict | bool):
        raise wrong_type(field, schema, "a JSON schema, an object")
    return _grammar("json_schema", orjson.dumps(schema), field)


def _json_object(field: str, value: Any) -> dict[str, str]:
    if value is not True:
        raise wrong_type(field, value, "true or false")
    return _schema(field, _ANY_OBJECT)


def _choice(field: str, value: Any) -> dict[str, str]:
    if not isinstance(value, list):
        raise wrong_type(field, value, "a list of strings")
    if not value:
        raise invalid_parameter(field, value, "not empty")
    for i, text in enumerate(value):
        if not isinstance(text, str):
            raise wrong_type(f"{field}[{i}]", text, "a string")
        if not text:
            raise invalid_parameter(f"{field}[{i}]", text, "not empty")
    return _grammar("choice", orjson.dumps(value), field)


def _regex(field: str, value: Any) -> dict[str, str]:
    return _grammar("regex", _text(field, value), field)


def _ebnf(field: str, value: Any) -> dict[str, str]:
    return _grammar("ebnf", _text(field, value), field)


def _text(field: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise wrong_type(field, value, "a string")
    if not value.strip():
        raise invalid_parameter(field, value, "not empty")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise RowError("invalid_utf8", f"{field} holds half a surrogate pair", field) from None


def _grammar(kind: str, text: bytes, field: str) -> dict[str, str]:
    if len(text) > MAX_GRAMMAR_BYTES:
        raise RowError(
            "grammar_too_large",
            f"{field} has {len(text):,} bytes; it may have {MAX_GRAMMAR_BYTES:,}",
            field,
        )
    return {"kind": kind, "text": text.decode(), "field": field}


def _refuse_others(field: str, value: Mapping[str, Any], known: frozenset[str] | set[str]) -> None:
    strange = next((key for key in value if key not in known and value[key] is not None), None)
    if strange is not None:
        raise RowError(
            "unknown_field",
            f"{field} has a key {shown(strange)} that pagemill does not know; it may have "
            f"{', '.join(sorted(known))}",
            f"{field}.{strange}",
        )


_CHECKS = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "json_schema": _schema,
}
_OUTPUTS = {
    "json": _schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _ebnf,
    "json_object": _json_object,
}
