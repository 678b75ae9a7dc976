"""A Jinja sandbox in which a template can take neither much time nor much memory.

Jinja's immutable sandbox keeps a template from Python's internals and from changing values. What
it leaves open is bounded here, for each rendering: steps (turns of a loop, calls, filters and
tests), characters of text that are made on the way, and seconds of this thread's processor time,
which are the same however busy the machine is. What could make much out of little in a single
step, such as `"x" * 10**9`, is refused before it is done; and so is whatever would walk through a
value that is short in memory and endless when it is written or compared (see `expanded_length`).
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import Template, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jobs.sandbox_globals import SafeDict, SafeNamespace
from jobs.text_growth import (
    check_filter,
    check_method,
    check_operator,
    check_result,
    expanded_length,
    is_container,
)

MAX_STEPS = 1 << 18
MAX_CHARACTERS = 16 << 20
MAX_SECONDS = 5.0
MAX_SOURCE = 1 << 20  # characters of a template

# What a template is given, it may walk through, and write, so many times.
_STEPS_A_CHARACTER, _PASSES = 1, 32

# Names that no template can write.
_STEPS, _CONCAT, _SPENT, _WALKED, _SEARCHED = " steps", " concat", " spent", " walked", " searched"


class Budget:
    """What is left to one rendering.

    Args:
        given: characters that the template is given, if more shall be allowed for long ones.
    """

    __slots__ = ("_characters", "_deadline", "_steps")

    def __init__(self, given: int = 0) -> None:
        self._steps = MAX_STEPS + _STEPS_A_CHARACTER * given
        self._characters = MAX_CHARACTERS + _PASSES * given
        self._deadline = time.thread_time() + MAX_SECONDS

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
        slow = characters > _MANY or self._steps % 64 == 0
        if slow and time.thread_time() > self._deadline:
            raise SecurityError(f"over {MAX_SECONDS:g} seconds")


_MANY = 10_000


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment whose templates spend the budget of the thread that renders them.

    Args:
        filters: more filters, or others of the same names.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]] | None = None, **options: Any):
        super().__init__(autoescape=False, finalize=self._written, **options)
        self._thread = threading.local()
        self._literal_characters = 0
        del self.globals["lipsum"]
        self.globals["dict"] = SafeDict()
        self.globals["namespace"] = SafeNamespace
        self.filters |= {"tojson": _to_json, **(filters or {})}
        tables: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for table in tables:
            for name, function in table.items():
                table[name] = self._bounded(name, function)
        self.filters[_STEPS] = self._counted
        self.filters[_CONCAT] = self._concat
        self.filters[_SPENT] = self._spent
        self.filters[_WALKED] = self._walked
        self.filters[_SEARCHED] = self._searched

    @property
    def budget(self) -> Budget:
        """Of what this thread renders."""
        if not hasattr(self._thread, "budget"):
            self._thread.budget = Budget()
        budget: Budget = self._thread.budget
        return budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._thread.budget = budget

    def parse(self, source: str, name: str | None = None, filename: str | None = None) -> Any:
        if len(source) > MAX_SOURCE:
            raise TemplateSyntaxError(f"it is over {MAX_SOURCE:,} characters", 1)
        return super().parse(source, name, filename)

    def bounded(self, tree: nodes.Template) -> Template:
        """The template of a syntax tree, with what spends the budget built in."""
        self.budget = Budget()  # of what Jinja computes while it compiles
        self._literal_characters = _literals(tree)
        for loop in tree.find_all(nodes.For):
            turn = nodes.Const(_literals(loop))
            loop.iter = nodes.Filter(loop.iter, _STEPS, [turn], [], None, None, lineno=loop.lineno)
        _replace(tree, nodes.Concat, _concatenation)
        _replace(tree, nodes.Getitem, _slicing)
        for comparison in list(tree.find_all(nodes.Compare)):
            comparison.expr = _filtered(comparison.expr, _WALKED)
            for operand in comparison.ops:
                within = operand.op in ("in", "notin")
                operand.expr = _filtered(operand.expr, _SEARCHED if within else _WALKED)
        for pair in list(tree.find_all(nodes.Pair)):
            pair.key = _filtered(pair.key, _WALKED)
        tree.set_environment(self)
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.step(check_operator(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(
        self, context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        if isinstance(function, LoopContext):  # a loop that calls itself, with what it runs over
            args = tuple(self._counted(value, self._literal_characters) for value in args)
        elif not isinstance(function, Macro):
            args = tuple(list(arg) if isinstance(arg, Iterator) else arg for arg in args)
            own = getattr(function, "__self__", None)
            for value in (*args, *kwargs.values(), own if isinstance(own, list | tuple) else None):
                self._walked(value)
            check_method(function, args, kwargs)
        return self._spent(super().call(context, function, *args, **kwargs))

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, str | int):
            return super().getitem(obj, argument)
        self._walked(argument)  # its hash is asked for
        return self._spent(super().getitem(obj, argument))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that spends the budget."""
        # Those that Jinja hands a context to have it as their first argument.
        skip = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            whole = name == "join" or name in _COMPARING
            if whole and isinstance(args[skip], Iterator):
                args = (*args[:skip], list(args[skip]), *args[skip + 1 :])
            if name in _COMPARING:
                for value in (*args[skip:], *kwargs.values()):
                    self._walked(value)
            check_filter(name, args[skip:], kwargs)
            return self._spent(function(*args, **kwargs))

        return bounded

    def _spent(self, result: Any) -> Any:
        self.budget.step(check_result(result))
        return result

    def _walked(self, value: Any) -> Any:
        """A value that is compared, hashed or copied, with everything in it."""
        if is_container(value):
            self.budget.step(expanded_length(value))
        return value

    def _searched(self, value: Any) -> Any:
        """What `in` looks into: a dict only hashes what it looks for."""
        return value if isinstance(value, dict) else self._walked(value)

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


# Filters and tests that compare, hash or add up what they are given.
_COMPARING = frozenset(
    {
        *("dictsort", "groupby", "max", "min", "sort", "sum", "unique"),
        *("eq", "==", "equalto", "ne", "!=", "ge", ">=", "gt", ">", "greaterthan", "in", "le"),
        *("<=", "lt", "<", "lessthan"),
    }
)


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


def _replace(
    tree: nodes.Template, kind: type[Any], replacement: Callable[[Any], nodes.Node]
) -> None:
    """Put others in the place of all nodes of a kind."""

    def replaced(value: Any) -> Any:
        return replacement(value) if isinstance(value, kind) else value

    for node in list(tree.find_all(nodes.Node)):
        for name, value in node.iter_fields():
            if isinstance(value, list):
                value[:] = map(replaced, value)
            else:
                setattr(node, name, replaced(value))


def _filtered(node: nodes.Expr, name: str) -> nodes.Expr:
    if isinstance(node, nodes.Const):
        return node
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _concatenation(node: nodes.Concat) -> nodes.Filter:
    values = nodes.List(node.nodes, lineno=node.lineno)
    return nodes.Filter(values, _CONCAT, [], [], None, None, lineno=node.lineno)


def _slicing(node: nodes.Getitem) -> nodes.Expr:
    """What is cut off is a copy; Jinja cuts without asking its environment."""
    return _filtered(node, _SPENT) if isinstance(node.arg, nodes.Slice) else node


def _to_json(value: Any, indent: int | None = None) -> str:
    """Jinja's own escapes <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
