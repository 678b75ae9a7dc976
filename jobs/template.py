"""`--template`: a Jinja template that makes a prompt of a row's columns.

The template runs in a sandbox: it reaches no Python internals, changes no value, loads no other
template, and can take neither much time nor much memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError

from jobs.errors import RowError, UsageError
from jobs.sandbox import Budget, Sandbox

MAX_PROMPT_CHARS = 1 << 20  # of what a template may write for one row
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
        self._sandbox = Sandbox(undefined=StrictUndefined)
        try:
            tree = self._sandbox.parse(source)
            for load in tree.find_all(_LOADS):
                raise UsageError(
                    f"line {load.lineno} of the template loads another template; "
                    "put everything into one file"
                )
            self.names = frozenset(meta.find_undeclared_variables(tree))
            self._template = self._sandbox.bounded(tree)
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
        self._sandbox.budget = Budget()
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
