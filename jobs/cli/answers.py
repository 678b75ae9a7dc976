"""Answers as people see them, a line each."""

from __future__ import annotations

from typing import Any

from jobs.cli.console import one_line
from jobs.kinds import JobKind

_SHOWN_CHARACTERS = 100
# The columns that hold the answer.
_ANSWERS = {
    JobKind.GENERATE: ["text"],
    JobKind.SCORE: ["scores", "best"],
    JobKind.EMBED: ["embedding"],
}


def columns_of(kind: JobKind) -> list[str]:
    """What `shown_answer` needs of a row, and what is told beside it."""
    own = ["row_index", "custom_id", "finish_reason", "completion_tokens", "error"]
    return own + _ANSWERS[kind]


def shown_answer(row: dict[str, Any]) -> str:
    """The answer of a row, or why there is none, in one line that may be cut."""
    error = row["error"]
    answer = _answer_of(row) if error is None else f"{error['message']} [{error['code']}]"
    line = one_line(answer)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"


def _answer_of(row: dict[str, Any]) -> str:
    if "scores" in row:
        best = row["best"]
        return f"choice {best}, log probability {row['scores'][best]['logprob']:.3f}"
    if "embedding" in row:
        numbers = ", ".join(f"{value:.3f}" for value in row["embedding"][:4])
        return f"{len(row['embedding'])} numbers: {numbers}, …"
    text: str = row["text"]
    return text
