"""From GBNF, the EBNF of llama.cpp and XGrammar, to llguidance's Lark.

What is regular in a grammar becomes terminals, as large as possible: the library matches each of
them at once, the longest text first, and a grammar without recursion is one of them as a whole.
Only what recurs is left to its parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from engine.grammar.gbnf_parser import (
    Alternatives,
    Characters,
    Literal,
    Node,
    Reference,
    Repeat,
    Sequence,
    parse,
)


def to_lark(text: str) -> str:
    """The same grammar in Lark.

    Raises:
        ValueError: it is no grammar; says where, and why.
        RecursionError: it is nested too deep.
    """
    rules = parse(text)
    if "root" not in rules:
        raise ValueError("there is no rule root ::= …")
    for name, body in rules.items():
        missing = next((n for n in _references(body) if n not in rules), None)
        if missing is not None:
            raise ValueError(f"the rule {name} names {missing}, which is no rule")
    return "".join(f"{line}\n" for line in _Writer(rules).lines())


@dataclass(slots=True)
class _Writer:
    """Writes rules, and terminals for the regular parts of those that recur."""

    rules: Mapping[str, Node]
    regular: set[str] = field(init=False)
    names: dict[str, str] = field(init=False)
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.regular = _regular_rules(self.rules)
        self.names = {
            rule: _lark_name(index, rule, terminal=rule in self.regular)
            for index, rule in enumerate(self.rules)
        }

    def lines(self) -> Iterator[str]:
        yield f"start: {self.names['root']}"
        for name, body in self.rules.items():
            write = self._terminal if name in self.regular else self._rule
            yield f"{self.names[name]}: {write(body)}"
        yield from self.parts

    def _terminal(self, node: Node) -> str:
        """A node all of which is regular."""
        return self._write(node, self._terminal)

    def _rule(self, node: Node) -> str:
        """A node some of which recurs, or may."""
        if self._is_regular(node):
            return self._part(node)
        if isinstance(node, Sequence):
            return " ".join(self._rule(run) for run in self._runs(node))
        return self._write(node, self._rule)

    def _write(self, node: Node, inner: Callable[[Node], str]) -> str:
        match node:
            case Literal(text):
                return json.dumps(text)
            case Characters(ranges, negated):
                return f"/{_character_class(ranges, negated)}/"
            case Reference(name):
                return self.names[name]
            case Repeat(of, least, most):
                return f"({inner(of)}){{{least},{'' if most is None else most}}}"
            case Sequence(nodes):
                return " ".join(inner(n) for n in nodes) or '""'
            case Alternatives(nodes):
                return f"({' | '.join(inner(n) for n in nodes)})"

    def _part(self, node: Node) -> str:
        """A terminal for a regular node inside a rule."""
        if isinstance(node, Literal | Characters | Reference):
            return self._terminal(node)
        name = f"PART{len(self.parts)}"
        self.parts.append(f"{name}: {self._terminal(node)}")
        return name

    def _runs(self, sequence: Sequence) -> Iterator[Node]:
        """The nodes, those regular ones joined that follow one another."""
        run: list[Node] = []
        for node in sequence.nodes:
            if self._is_regular(node):
                run.append(node)
                continue
            if run:
                yield run[0] if len(run) == 1 else Sequence(tuple(run))
                run = []
            yield node
        if run:
            yield run[0] if len(run) == 1 else Sequence(tuple(run))

    def _is_regular(self, node: Node) -> bool:
        return all(name in self.regular for name in _references(node))


def _lark_name(index: int, rule: str, *, terminal: bool) -> str:
    """Terminals are in upper case; the number tells `a-b` from `a_b`."""
    name = f"r{index}_" + re.sub(r"[^A-Za-z0-9_]", "_", rule)
    return name.upper() if terminal else name.lower()


def _regular_rules(rules: Mapping[str, Node]) -> set[str]:
    """The rules that do not recur, and name none that does."""
    named = {name: set(_references(body)) for name, body in rules.items()}
    regular: set[str] = set()
    while True:
        more = {name for name, needs in named.items() if name not in regular and needs <= regular}
        if not more:
            return regular
        regular |= more


def _references(node: Node) -> Iterator[str]:
    match node:
        case Reference(name):
            yield name
        case Repeat(of):
            yield from _references(of)
        case Sequence(nodes) | Alternatives(nodes):
            for inner in nodes:
                yield from _references(inner)


def _character_class(ranges: tuple[tuple[str, str], ...], negated: bool) -> str:
    """A class of Rust's regular expressions, all of it in numbers."""
    if not ranges:  # nothing is excluded
        return "(?s:.)"
    inside = "".join(rf"\x{{{ord(low):x}}}-\x{{{ord(high):x}}}" for low, high in ranges)
    return f"[{'^' if negated else ''}{inside}]"
