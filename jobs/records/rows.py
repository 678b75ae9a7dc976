"""What became of single rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowErrorInfo:
    """Why a row has no answer; `line` is the 1-based line (JSONL) or row (Parquet) of the input."""

    code: str
    message: str
    line: int | None = None
    field: str | None = None


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
class RowResult:
    """The outcome of one row: an answer, or an error, never both.

    Attributes:
        text, finish_reason, logprobs: of the first answer.
        completion_tokens: of all answers together.
        choices: all answers, the first one included; None unless the row asks for several.
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


@dataclass(frozen=True, slots=True)
class ErrorTally:
    """Rows that have no answer for one reason, and the first of them as an example."""

    code: str
    rows: int
    row_index: int
    line: int | None
    field: str | None
    message: str
