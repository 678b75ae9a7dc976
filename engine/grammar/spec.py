"""What a request asks the text of its answer to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import RequestError

MAX_GRAMMAR_BYTES = 1 << 20


class GrammarKind(StrEnum):
    """How the text of a grammar is written."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"  # of the whole answer, in the syntax of Rust's `regex`
    CHOICE = "choice"  # a JSON list of strings, one of which is the answer
    EBNF = "ebnf"  # GBNF with its rules as `name ::= …`, or Lark


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar as the request wrote it; whether it can be used is found out by compiling it.

    Attributes:
        text: at most `MAX_GRAMMAR_BYTES` of UTF-8.
        field: what the row calls it, for errors; equal grammars may have different names.
    """

    kind: GrammarKind
    text: str
    field: str = field(default="grammar", compare=False)

    @classmethod
    def from_json(cls, values: Mapping[str, str]) -> GrammarSpec:
        """Of its fields.

        Raises:
            RequestError: it is too large.
        """
        return cls(GrammarKind(values["kind"]), values["text"], values["field"])

    def __post_init__(self) -> None:
        size = len(self.text.encode(errors="surrogatepass"))
        if size > MAX_GRAMMAR_BYTES:
            raise RequestError(
                "grammar_too_large",
                f"{self.field} has {size:,} bytes; it may have {MAX_GRAMMAR_BYTES:,}",
                self.field,
            )
