r"""Reading GBNF, the EBNF of llama.cpp and XGrammar.

    root  ::= "a" rule* | ( [a-z0-9] | [^\n"] ){2,5}   # a comment
    rule  ::= "\u00e9" .

A rule goes on until the next name that is followed by `::=`, over as many lines as it likes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    text: str


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of some ranges, both ends included, or of none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Reference:
    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    of: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Sequence:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    nodes: tuple[Node, ...]


Node = Literal | Characters | Reference | Repeat | Sequence | Alternatives

_TOKEN = re.compile(
    r"""
    (?P<space> (?: [\s] | \#[^\r\n]* )+ )
  | (?P<rule> [A-Za-z_][\w.-]* ) (?= \s* ::= )
  | (?P<name> [A-Za-z_][\w.-]* )
  | (?P<is> ::= )
  | (?P<literal> " (?: [^"\\\r\n] | \\. )* " )
  | (?P<characters> \[ \^? (?: [^\]\\\r\n] | \\. )* \] )
  | (?P<times> \{ \s* \d* \s* ,? \s* \d* \s* \} )
  | (?P<sign> [()|*+?.] )
    """,
    re.VERBOSE | re.ASCII,
)
_CHARACTER = re.compile(
    r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\(.)|([^\\])", re.DOTALL
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_MOST_TIMES = 1_000_000_000


def parse(text: str) -> dict[str, Node]:
    """The rules, by their names.

    Raises:
        ValueError: it is no grammar; says where, and why.
        RecursionError: it is nested too deep.
    """
    return _Parser(text).rules()


class _Parser:
    """Recursive descent over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next()

    def rules(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while self._kind != "end":
            if self._kind != "rule":
                raise self._error("a rule, name ::= …")
            name = self._token
            if name in found:
                raise ValueError(f"{self._place()}: there are two rules {name}")
            self._next()
            self._next()  # ::=
            found[name] = self._alternatives()
        return found

    def _alternatives(self) -> Node:
        found = [self._sequence()]
        while self._token == "|" and self._kind == "sign":
            self._next()
            found.append(self._sequence())
        return found[0] if len(found) == 1 else Alternatives(tuple(found))

    def _sequence(self) -> Node:
        found: list[Node] = []
        while (node := self._element()) is not None:
            found.append(self._repeated(node))
        return found[0] if len(found) == 1 else Sequence(tuple(found))

    def _element(self) -> Node | None:
        token = self._token
        node: Node | None = None
        match self._kind:
            case "literal":
                node = Literal("".join(c or "-" for c in self._characters(token[1:-1])))
            case "characters":
                node = self._class(token[1:-1])
            case "name":
                node = Reference(token)
            case "sign" if token == ".":
                node = Characters((), negated=True)
            case "sign" if token == "(":
                self._next()
                node = self._alternatives()
                if self._token != ")":
                    raise self._error("a closing parenthesis")
        if node is not None:
            self._next()
        return node

    def _repeated(self, node: Node) -> Node:
        while True:
            match self._kind, self._token:
                case "sign", "*":
                    node = Repeat(node, 0, None)
                case "sign", "+":
                    node = Repeat(node, 1, None)
                case "sign", "?":
                    node = Repeat(node, 0, 1)
                case "times", token:
                    node = self._times(node, token)
                case _:
                    return node
            self._next()

    def _times(self, node: Node, token: str) -> Repeat:
        low, comma, high = token[1:-1].replace(" ", "").partition(",")
        if not (low or high):
            raise self._error("a number of times, such as {2,5}")
        least = int(low or 0)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > _MOST_TIMES or (most is not None and most < least):
            raise self._error("a number of times that can be")
        return Repeat(node, least, most)

    def _class(self, inside: str) -> Characters:
        negated = inside.startswith("^")
        parts = self._characters(inside.removeprefix("^"), dash=True)
        ranges, index = [], 0
        while index < len(parts):
            low = parts[index]
            if index + 2 < len(parts) and parts[index + 1] is None:
                high, index = parts[index + 2], index + 3
            else:
                high, index = low, index + 1
            low, high = low or "-", high or "-"
            if low > high:
                raise self._error("a range of characters whose end is not before its start")
            ranges.append((low, high))
        if not ranges and not negated:
            raise self._error("a character in the brackets")
        return Characters(tuple(ranges), negated)

    def _characters(self, inside: str, dash: bool = False) -> list[str | None]:
        """The characters that are meant; None for a dash that is not escaped, if it counts."""
        found: list[str | None] = []
        for match in _CHARACTER.finditer(inside):
            number = match[1] or match[2] or match[3]
            if number:
                code = int(number, 16)
                if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                    raise self._error("a character of Unicode")
                found.append(chr(code))
            elif match[4]:
                if match[4] in "xuU":
                    raise self._error(f"digits behind \\{match[4]}")
                found.append(_NAMED.get(match[4], match[4]))
            else:
                found.append(None if dash and match[5] == "-" else match[5])
        return found

    def _next(self) -> None:
        self._start = self._at
        while True:
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                if self._at < len(self._text):
                    self._start, self._kind, self._token = self._at, "", self._text[self._at]
                    raise self._error("a literal, a rule or a sign")
                self._kind, self._token = "end", ""
                return
            self._at = match.end()
            if match.lastgroup != "space":
                self._start = match.start()
                self._kind, self._token = match.lastgroup or "", match[0]
                return

    def _place(self) -> str:
        return f"line {self._text.count(chr(10), 0, self._start) + 1}"

    def _error(self, wanted: str) -> ValueError:
        shown = self._text[self._start : self._start + 20]
        found = repr(shown) if shown else "the end"
        return ValueError(f"{self._place()}: there should be {wanted}, and there is {found}")
