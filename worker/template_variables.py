"""What can be told of a chat template without running it."""

from __future__ import annotations

from functools import lru_cache

from jinja2 import Environment, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser


@lru_cache(maxsize=64)
def uses_variable(template: str, name: str) -> bool:
    """Whether a chat template reads a variable that it is given, in any of its branches.

    Raises:
        jinja2.TemplateSyntaxError: it is no template.
    """
    return name in meta.find_undeclared_variables(_SYNTAX.parse(template))


def check_syntax(template: object) -> None:
    """See that a chat template can be compiled; it is not run.

    Raises:
        TypeError: it is not text.
        jinja2.TemplateSyntaxError: it is no template, or uses a filter or test that is not there.
    """
    if not isinstance(template, str):
        raise TypeError(f"it must be text, not {template!r}")
    _SYNTAX.compile(template)


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}`, which transformers adds to Jinja."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_SYNTAX = Environment(extensions=["jinja2.ext.loopcontrols", _Generation])  # not to run
