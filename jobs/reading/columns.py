"""What each column of a Parquet input is for, decided once from its schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from jobs.errors import InputError
from jobs.keys import LOGPROBS_OF_ANSWERS, Kind, Meaning
from jobs.kinds import JobKind
from jobs.openai_lines import LINE_KEYS
from jobs.prompts import PromptRules
from jobs.reading.carried_types import plain_type
from jobs.schema import CARRIED_PREFIX, free_name, output_name

MAX_COLUMNS = 4096


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the input.

    Attributes:
        read: those whose values are checked row by row.
        nested: those of them that hold objects, in which null means left out.
        carried: source column and its field in the normalized copy.
        mixed: whether a row may be a line of an OpenAI batch file or a plain row. `method`, `url`
            and `body` are carried then, too: they are data of the plain rows.
    """

    read: tuple[str, ...]
    nested: tuple[str, ...]
    carried: tuple[tuple[str, pa.Field], ...]
    mixed: bool


def assign_columns(name: str, schema: pa.Schema, rules: PromptRules) -> Columns:
    """Decide what the columns are for.

    Raises:
        InputError: no prompt, a column of a wrong type, a misspelt parameter, or two columns of
            one name. `name` is what the message calls the input.
    """
    if len(schema) > MAX_COLUMNS:
        raise InputError(
            f"{name} has {len(schema):,} columns; the limit is {MAX_COLUMNS:,}: leave out those "
            "that the output does not need, or put them into structs"
        )
    counts = Counter(schema.names)
    twice = sorted(column for column, count in counts.items() if count > 1)
    if twice:
        raise InputError(f"{name} has two columns {twice[0]!r}; rename one of them")
    read, nested, carried = [], [], []
    has_lines = rules.takes_lines and set(schema.names) >= LINE_KEYS
    has_plain_rows = _may_hold_plain_rows(schema)
    if has_plain_rows:  # columns of other types are data, as in a table of web pages
        has_lines = has_lines and all(_fits(schema.field(name), Kind.LINE) for name in LINE_KEYS)
    mixed = has_lines and has_plain_rows
    for field in schema:
        found = rules.meaning(field.name)
        if has_lines and field.name in LINE_KEYS:
            found = Meaning(Kind.LINE)
            if mixed:
                carried.append(field)
        if field.name in LOGPROBS_OF_ANSWERS and _is_list(field.type):
            found = Meaning(Kind.DATA)  # of an answer: the file is the output of another job
        if found.kind is Kind.MISSPELT:
            raise InputError(
                f"{name} has a column {field.name!r}; did you mean {found.name}? Rename it "
                "(if it is data of yours, to another name)"
            )
        if found.kind is Kind.DATA:
            carried.append(field)
            continue
        _check_type(name, schema, field, found.kind)
        read.append(field.name)
        if _holds_objects(field.type, found.kind):
            nested.append(field.name)
    if not has_lines:
        _check_prompt(name, schema, rules)
    if rules.template is not None:  # it may use every column
        read = schema.names
    return Columns(tuple(read), tuple(nested), _carry(carried, rules.kind), mixed)


def _may_hold_plain_rows(schema: pa.Schema) -> bool:
    """Whether a row may have a prompt or messages; in a column of nulls none has."""
    return any(
        name in schema.names and not types.is_null(schema.field(name).type)
        for name in ("prompt", "messages")
    )


def _carry(fields: list[pa.Field], kind: JobKind) -> tuple[tuple[str, pa.Field], ...]:
    """Output names that are all different: `input.text` may be taken when `text` needs it."""
    taken = {field.name for field in fields if output_name(field.name, kind) == field.name}
    carried = []
    for field in fields:
        target = output_name(field.name, kind)
        if target != field.name:
            target = free_name(field.name, taken)
        plain = pa.field(CARRIED_PREFIX + target, plain_type(field.type))
        carried.append((field.name, plain))
    return tuple(carried)


def _check_prompt(name: str, schema: pa.Schema, rules: PromptRules) -> None:
    if rules.template is not None:
        return
    if rules.prompt_column is not None:
        if rules.prompt_column not in schema.names:
            raise InputError(
                f"{name} has no column {rules.prompt_column!r}; it has: {_listed(schema)}"
            )
    elif not {*rules.prompt_names, "messages"} & set(schema.names):
        wanted = "input" if rules.kind is JobKind.EMBED else "messages"
        raise InputError(
            f"{name} has neither a prompt nor a {wanted} column; it has: {_listed(schema)}. "
            "Name the one that holds the prompt with --prompt-column, or make it of several with "
            "--template"
        )


def _check_type(name: str, schema: pa.Schema, field: pa.Field, kind: Kind) -> None:
    if not _fits(field, kind):
        raise InputError(
            f"the column {field.name!r} of {name} is {field.type}; it must be "
            f"{_wanted(field, kind)[0]} (columns: {_listed(schema)})"
        )


def _fits(field: pa.Field, kind: Kind) -> bool:
    value = field.type.value_type if types.is_dictionary(field.type) else field.type
    return bool(types.is_null(value)) or _wanted(field, kind)[1](value)


def _wanted(field: pa.Field, kind: Kind) -> tuple[str, Callable[[pa.DataType], bool]]:
    """The type that a column must have, in words, and whether one is it."""
    if kind in (Kind.PARAMETER, Kind.CHAT, Kind.GRAMMAR, Kind.LINE):
        return _TYPES[field.name]
    return _OTHER_TYPES.get(kind, ("of any type", lambda _: True))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _is_list_of(fits: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: (
        _is_list(kind) and (fits(kind.value_type) or bool(types.is_null(kind.value_type)))
    )


def _is_messages(kind: pa.DataType) -> bool:
    if not _is_list(kind):
        return False
    message = kind.value_type
    if types.is_null(message):  # of lists that are all empty
        return True
    return types.is_struct(message) and {"role", "content"} <= {field.name for field in message}


def _holds_objects(kind: pa.DataType, meant: Kind) -> bool:
    """Whether there are objects in it, beside those that messages are.

    A column of nulls may hold some in the next file of a folder.
    """
    while _is_list(kind):
        kind = kind.value_type
    if types.is_null(kind):
        return True
    if meant is Kind.MESSAGES:
        return any(field.name == "tool_calls" for field in kind)
    return bool(types.is_struct(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind))


_INTEGER = ("an integer type", types.is_integer)
_NUMBER = ("a floating-point or integer type", _is_number)
_BOOL = ("bool", types.is_boolean)
_INTEGERS = ("list<integer>", _is_list_of(types.is_integer))
_TEXT = ("string", _is_text)
_TEXTS = (
    "string or list<string>",
    lambda kind: _is_text(kind) or _is_list_of(_is_text)(kind),
)
_OBJECT = (
    "struct, or string that holds JSON",
    lambda kind: _is_text(kind) or bool(types.is_struct(kind)),
)
_TYPES: dict[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    "max_tokens": _INTEGER,
    "temperature": _NUMBER,
    "top_k": _INTEGER,
    "top_p": _NUMBER,
    "min_p": _NUMBER,
    "seed": _INTEGER,
    "repetition_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "logit_bias": _OBJECT,
    "allowed_token_ids": _INTEGERS,
    "bad_words": _TEXTS,
    "bad_words_ids": ("list<list<integer>>", _is_list_of(_is_list_of(types.is_integer))),
    "min_tokens": _INTEGER,
    "stop": _TEXTS,
    "include_stop_str_in_output": _BOOL,
    "stop_token_ids": _INTEGERS,
    "ignore_eos": _BOOL,
    "n": _INTEGER,
    "logprobs": _INTEGER,
    "prompt_logprobs": _INTEGER,
    "use_beam_search": ("bool", types.is_boolean),
    "num_beams": _INTEGER,
    "length_penalty": _NUMBER,
    "early_stopping": (
        "bool or string",
        lambda kind: _is_text(kind) or bool(types.is_boolean(kind)),
    ),
    "tools": (
        "list<struct<type, function>>, or string that holds JSON",
        lambda kind: _is_text(kind) or _is_list_of(types.is_struct)(kind),
    ),
    "tool_choice": _OBJECT,
    "chat_template_kwargs": _OBJECT,
    "reasoning_effort": _TEXT,
    "response_format": _OBJECT,
    "structured_outputs": _OBJECT,
    "json_schema": _OBJECT,
    "method": _TEXT,
    "url": _TEXT,
    "body": _OBJECT,
}
_OTHER_TYPES: dict[Kind, tuple[str, Callable[[pa.DataType], bool]]] = {
    Kind.PROMPT: _TEXT,
    Kind.MESSAGES: ("list<struct<role, content>>", _is_messages),
    Kind.CONTINUATIONS: ("list<string>", _is_list_of(_is_text)),
    Kind.CUSTOM_ID: (
        "string or an integer type",
        lambda kind: _is_text(kind) or bool(types.is_integer(kind)),
    ),
}


def _listed(schema: pa.Schema) -> str:
    shown = [f"{field.name} ({field.type})"[:100] for field in schema][:20]
    more = len(schema) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
