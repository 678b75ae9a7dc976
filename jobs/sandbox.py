"""A Jinja sandbox in which a template can take neither much time nor much memory.

Jinja's immutable sandbox keeps a template from Python's internals and from changing values. What
it leaves open is bounded here, for each rendering: steps (turns of a loop, calls, filters and
tests), characters of text that are made on the way, and seconds. What could make much out of
little in a single step, such as `"x" * 10**9`, is refused before it is done.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import Template, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jobs.text_growth import check_filter, check_method, check_operator, expanded_length

MAX_STEPS = 1 << 18
MAX_CHARACTERS = 16 << 20
MAX_SECONDS = 5.0

# Names that no template can write.
_STEPS, _CONCAT = " steps", " concat"


class Budget:
    """What is left to one rendering."""

    __slots__ = ("_characters", "_deadline", "_steps")

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self, characters: int = 0) -> None:
        """Take one step, which makes so many characters of text.

        Raises:
            SecurityError: too much was taken.
        """
        self._steps -= 1
        self._characters -= characters
        if self._steps < 0:
            raise SecurityError(f"over {MAX_STEPS:,} steps (turns of loops, calls, filters)")
        if self._characters < 0:
            raise SecurityError(f"over {MAX_CHARACTERS:,} characters of text on the way")
        if self._steps % 256 == 0 and time.monotonic() > self._deadline:
            raise SecurityError(f"over {MAX_SECONDS:g} seconds")


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one template at a time, and for one thread."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(autoescape=False, finalize=self._written, **options)
        self.budget = Budget()
        self._literal_characters = 0
        del self.globals["lipsum"]
        self.filters["tojson"] = _to_json  # Jinja's own escapes <, > and & for HTML
        tables: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for table in tables:
            for name, function in table.items():
                table[name] = self._bounded(name, function)
        self.filters[_STEPS] = self._counted
        self.filters[_CONCAT] = self._concat

    def bounded(self, tree: nodes.Template) -> Template:
        """The template of a syntax tree, with what spends the budget built in."""
        self._literal_characters = _literals(tree)
        for loop in tree.find_all(nodes.For):
            turn = nodes.Const(_literals(loop))
            loop.iter = nodes.Filter(loop.iter, _STEPS, [turn], [], None, None, lineno=loop.lineno)
        for node in list(tree.find_all(nodes.Node)):
            for name, value in node.iter_fields():
                if isinstance(value, nodes.Concat):
                    setattr(node, name, _concatenation(value))
                elif isinstance(value, list):
                    value[:] = [
                        _concatenation(item) if isinstance(item, nodes.Concat) else item
                        for item in value
                    ]
        tree.set_environment(self)
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.step(check_operator(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(
        self, context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        check_method(function, args, kwargs)
        if isinstance(function, LoopContext):  # a loop that calls itself, with what it runs over
            args = tuple(self._counted(value, self._literal_characters) for value in args)
        return self._spent(super().call(context, function, *args, **kwargs))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that spends the budget."""
        # Those that Jinja hands a context to have it as their first argument.
        skip = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            if name == "join" and not hasattr(args[skip], "__len__"):
                args = (*args[:skip], list(args[skip]), *args[skip + 1 :])
            check_filter(name, args[skip:], kwargs)
            return self._spent(function(*args, **kwargs))

        return bounded

    def _spent(self, result: Any) -> Any:
        self.budget.step(len(result) if isinstance(result, str | bytes | list | tuple) else 0)
        return result

    def _written(self, value: Any) -> Any:
        """What `{{ … }}` writes of a value."""
        if isinstance(value, Undefined):
            return value
        self.budget.step(expanded_length(value))
        return value

    def _concat(self, values: list[Any]) -> str:
        """The operator `~`."""
        self.budget.step(sum(expanded_length(value) for value in values))
        return "".join(str(value) for value in values)

    def _counted(self, values: Iterable[Any], literals: int) -> _Counted:
        return _Counted(values, self, literals)


class _Counted:
    """What a loop runs over; each turn is a step, and writes the text inside the loop."""

    def __init__(self, values: Iterable[Any], environment: Sandbox, literals: int) -> None:
        self._values = values
        self._environment = environment
        self._literals = literals

    def __len__(self) -> int:
        return len(self._values)  # type: ignore[arg-type]  # TypeError tells that it has none

    def __iter__(self) -> Iterator[Any]:
        for value in self._values:
            self._environment.budget.step(self._literals)
            yield value


def _literals(node: nodes.Node) -> int:
    """Characters that stand in (a part of) a template as they will be written."""
    return sum(len(data.data) for data in node.find_all(nodes.TemplateData))


def _concatenation(node: nodes.Concat) -> nodes.Filter:
    values = nodes.List(node.nodes, lineno=node.lineno)
    return nodes.Filter(values, _CONCAT, [], [], None, None, lineno=node.lineno)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
