"""Which variables a chat template reads."""

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


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}`, which transformers adds to Jinja."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_SYNTAX = Environment(extensions=["jinja2.ext.loopcontrols", _Generation])  # to parse, not to run
