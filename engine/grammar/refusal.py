"""Why a grammar cannot be used."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import RequestError
from engine.grammar.spec import GrammarSpec

# Messages of the library name all of a grammar's parts.
_MOST_CHARACTERS = 500
# How its messages say that a limit was met.
_OF_LIMITS = (
    "too large",
    "too big",
    "too many",
    "too complex",
    "too deep",
    "limit",
    "max is",
    "fuel",
)


def code_of(message: str) -> str:
    """The error code of a message of the library."""
    met = any(sign in message for sign in _OF_LIMITS)
    return "grammar_too_large" if met else "invalid_grammar"


@dataclass(frozen=True, slots=True)
class GrammarRefusal:
    """What compiling a grammar came to, where it gave none.

    Attributes:
        code: `invalid_grammar` or `grammar_too_large`.
        reason: the end of a sentence about the grammar.
    """

    code: str
    reason: str

    @classmethod
    def by_library(cls, message: str) -> GrammarRefusal:
        """It is not written in its own language, asks for what there is not, or for too much."""
        reason = " ".join(message.split())
        if len(reason) > _MOST_CHARACTERS:
            reason = f"{reason[:_MOST_CHARACTERS]}…"
        return cls(code_of(reason), f"cannot be used: {reason}")

    @classmethod
    def too_large(cls, reason: str) -> GrammarRefusal:
        """To find out what it allows takes more than there is for it."""
        return cls("grammar_too_large", f"is too large: {reason}; make it simpler")

    def of(self, spec: GrammarSpec) -> RequestError:
        """The error of a request with this grammar."""
        return RequestError(self.code, f"{spec.field} {self.reason}", spec.field)
