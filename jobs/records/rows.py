"""What became of single rows."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowErrorInfo:
    """Why a row has no answer; `line` is the 1-based line (JSONL) or row (Parquet) of the input.

    Messages quote what templates and libraries say. Half a surrogate pair in one, which no file
    takes, becomes a backslash escape.
    """

    code: str
    message: str
    line: int | None = None
    field: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _storable(self.message))
        if self.field is not None:
            object.__setattr__(self, "field", _storable(self.field))


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a position."""

    token_id: int
    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a generated token was; `bytes` is what it adds to the text."""

    token_id: int
    token: str
    bytes: bytes
    logprob: float
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several answers to one row (`n`)."""

    text: str
    finish_reason: str
    completion_tokens: int
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class ContinuationScore:
    """How likely one of the continuations of a row is.

    Attributes:
        logprob: natural logarithm of its probability after the prompt.
        is_greedy: whether greedy sampling would have given it.
        token_logprobs: float32, of each of its tokens.
    """

    logprob: float
    is_greedy: bool
    token_logprobs: array[float]


@dataclass(frozen=True, slots=True)
class RowResult:
    """The outcome of one row: an answer, or an error, never both.

    Attributes:
        text, finish_reason, logprobs: of the first answer.
        completion_tokens: of all answers together.
        choices: all answers, the first one included; None unless the row asks for several.
        prompt_logprobs: of the prompt's tokens from the second on.
        scores: of a row that is scored, of its continuations in their order.
        best, best_normalized: the continuation that is the likeliest, and the likeliest by byte.
        embedding: of a row that is embedded, float32.
    """

    row_index: int
    text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seed: int | None = None
    error: RowErrorInfo | None = None
    choices: tuple[Choice, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    scores: tuple[ContinuationScore, ...] | None = None
    best: int | None = None
    best_normalized: int | None = None
    embedding: array[float] | None = None


@dataclass(frozen=True, slots=True)
class ErrorTally:
    """Rows that have no answer for one reason, and the first of them as an example."""

    code: str
    rows: int
    row_index: int
    line: int | None
    field: str | None
    message: str
