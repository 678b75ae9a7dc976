"""`--template`: a Jinja template that makes a prompt of a row's columns.

The template runs in Jinja's immutable sandbox: it reaches no Python internals, changes no
value, and loads no other template. The sandbox bounds `range()`; what it leaves open, such as
`"x" * 10**9`, is bounded here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jobs.errors import RowError, UsageError

MAX_PROMPT_CHARS = 1 << 20  # of what a template may write for one row
_MAX_NUMBER = 1 << 20  # as a repeat count, an exponent or a method's argument
_LOADS = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class PromptTemplate:
    """A compiled template.

    Attributes:
        source: the text that it was made from.
        names: names that it takes from the row. They are data even where another engine
            would take them for parameters.

    Raises:
        UsageError: the text is no Jinja template, or it loads other templates.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        environment = _Sandbox()
        try:
            tree = environment.parse(source)
            for load in tree.find_all(_LOADS):
                raise UsageError(
                    f"line {load.lineno} of the template loads another template; "
                    "put everything into one file"
                )
            self.names = frozenset(meta.find_undeclared_variables(tree))
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise UsageError(f"line {error.lineno} of the template: {error.message}") from None
        except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
            raise UsageError(f"the template does not compile: {error}") from None

    def render(self, row: Mapping[str, Any]) -> str:
        """The prompt of one row.

        Columns are variables; `row["a name with spaces"]` reaches every one of them.

        Raises:
            RowError: `undefined_variable`, or `template_error` for whatever else goes wrong.
        """
        pieces, length = [], 0
        try:
            for piece in self._template.generate({"row": row, **row}):
                length += len(piece)
                if length > MAX_PROMPT_CHARS:
                    raise SecurityError(f"its output is over {MAX_PROMPT_CHARS:,} characters")
                pieces.append(piece)
        except UndefinedError as error:
            columns = ", ".join(list(row)[:20]) or "none"
            raise RowError(
                "undefined_variable", f"the template: {error.message} (the row has: {columns})"
            ) from None
        # A template is a program of the user's: whatever it raises is about this row.
        except Exception as error:
            reason = str(error)[:200] or type(error).__name__
            raise RowError("template_error", f"the template failed on this row: {reason}") from None
        return "".join(pieces)


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False)
        self.filters["tojson"] = _to_json  # Jinja's own escapes <, > and & for HTML

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and (_is_big(left) or _is_big(right) or _is_over(right, 64)):
            raise SecurityError("a power with numbers this big is not allowed")
        for one, other in ((left, right), (right, left)):
            if hasattr(one, "__len__") and isinstance(other, int):
                size = len(one) * other
                if size > MAX_PROMPT_CHARS:
                    raise SecurityError(f"repeating to {size:,} items is not allowed")
        return super().call_binop(context, operator, left, right)

    def call(
        self, context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        if any(_is_big(value) for value in (*args, *kwargs.values())):
            raise SecurityError(f"an argument over {_MAX_NUMBER:,} is not allowed")
        return super().call(context, function, *args, **kwargs)


def _is_big(value: object) -> bool:
    return _is_over(value, _MAX_NUMBER)


def _is_over(value: object, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) > limit


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
