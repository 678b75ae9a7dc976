"""A model's chat template: a program that came with the model, run where it can do no harm.

It gets what transformers gives to chat templates, and writes what it writes there, but in the
sandbox of `jobs.sandbox`: it reaches no file, module or attribute of Python's, and takes bounded
time and memory for each row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser

from jobs.sandbox import Budget, Sandbox
from jobs.text_growth import expanded_length

_MAX_DATE_FORMAT = 200


class ChatTemplate:
    """A compiled chat template; threads may share it.

    Attributes:
        variables: names of what it reads of all that it is given.

    Raises:
        TypeError: it is not text.
        jinja2.TemplateSyntaxError: it is no template, or uses a filter or test that is not there.
    """

    def __init__(self, source: object) -> None:
        if not isinstance(source, str):
            raise TypeError(f"it must be text, not {source!r}")
        self._sandbox = Sandbox(
            {"tojson": _to_json},
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self._sandbox.globals["raise_exception"] = _raise_exception
        self._sandbox.globals["strftime_now"] = _strftime_now
        tree = self._sandbox.parse(source)
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        self._template = self._sandbox.bounded(tree)

    def render(self, variables: Mapping[str, Any]) -> str:
        """What it writes.

        Raises:
            SecurityError: it took more than it may, or reached for what it may not have.
            Exception: whatever its author chose.
        """
        self._sandbox.budget = Budget(expanded_length(variables))
        return self._template.render(variables)


@lru_cache(maxsize=64)
def compiled(source: str) -> ChatTemplate:
    """The template of a text. Raises what `ChatTemplate` raises."""
    return ChatTemplate(source)


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}` marks what a model is trained on; no effect here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    if len(form) > _MAX_DATE_FORMAT:
        raise SecurityError(f"a format of a date over {_MAX_DATE_FORMAT} characters")
    return datetime.now().strftime(form)  # noqa: DTZ005  # the day of this place


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
