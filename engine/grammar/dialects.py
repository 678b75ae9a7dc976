"""From the languages that grammars are written in to the one that llguidance compiles."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import llguidance

from engine.grammar.gbnf import to_lark
from engine.grammar.spec import GrammarKind

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# JSON may have white space between its parts, and small models, once they have begun with it,
# often never end. It is as deep as anybody indents.
_SCHEMA_DEFAULTS: JsonCompileOptions = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}"}


def translate(kind: GrammarKind, text: str) -> str:
    """The grammar as llguidance reads it.

    Raises:
        ValueError: it is not what its kind says. Whether it can be compiled is not known yet.
    """
    match kind:
        case GrammarKind.JSON_SCHEMA:
            return _schema(text)
        case GrammarKind.REGEX:
            return _regex(text)
        case GrammarKind.CHOICE:
            return _choice(text)
        case GrammarKind.EBNF:
            return to_lark(text) if "::=" in text else text


def _schema(text: str) -> str:
    schema = json.loads(text)
    if schema is False:
        raise ValueError("the schema false allows no answer")
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ValueError("a JSON schema is an object, true or false")
    return llguidance.LLMatcher.grammar_from_json_schema(schema, defaults=_SCHEMA_DEFAULTS)


def _regex(regex: str) -> str:
    """Anchors of the whole are left out: all of the answer has to match in any case."""
    regex = regex.removeprefix("^")
    backslashes = len(regex[:-1]) - len(regex[:-1].rstrip("\\"))
    if regex.endswith("$") and backslashes % 2 == 0:
        regex = regex[:-1]
    return f"start: /{llguidance.regex_to_lark(regex, use_ascii='dws')}/"


def _choice(text: str) -> str:
    choices = json.loads(text)
    if not (isinstance(choices, list) and choices and all(isinstance(c, str) for c in choices)):
        raise ValueError("a choice is a list of strings")
    # One terminal: alternatives of a rule are limited, and these may be many.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(choice) for choice in choices)
