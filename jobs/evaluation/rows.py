"""What a scorer is given, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MAX_NOTE = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """A row of a job that has ended, with what it should have said.

    Attributes:
        answer: None where the row has none; `error` then says why.
        target: the right answer, or a list of those that are accepted; None if the row has none.
        prompt: the row's prompt, or the JSON of its messages.
        error: code of the row's error.
        columns: carried columns by their own names, whatever the output had to call them.
        choices: what the row offers to choose from.
        best: number of the choice that is the likeliest, in a job of kind `score`.
        best_normalized: the same by length, see docs/scoring.md.
    """

    row_index: int
    answer: str | None = None
    target: Any = None
    prompt: str = ""
    custom_id: str | None = None
    error: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[str] | None = None
    best: int | None = None
    best_normalized: int | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """What a row is worth.

    Attributes:
        value: None where that cannot be said: the row is missing.
        note: what was found in the answer, or why the row is missing.
        counts: what the row adds to the sums of a score of all texts together, where it is one.
    """

    value: float | None
    note: str | None = None
    counts: tuple[int, ...] | None = None


def without_thoughts(row: ScoredRow) -> ScoredRow:
    """A row whose answer is what the model says once it has thought."""
    answer = row.answer
    if answer is None or "think>" not in answer:
        return row
    return replace(row, answer=after_thoughts(answer))


def after_thoughts(text: str) -> str:
    """What a model says after it has thought, as many models do aloud.

    The thoughts end at the last `</think>`; the template of some models begins them, so that there
    is no `<think>` in the text. Thoughts without an end are thoughts alone.
    """
    _, end, said = text.rpartition("</think>")
    if end:
        return said.lstrip()
    return "" if text.lstrip().startswith("<think>") else text


def missing(why: str) -> Score:
    return Score(None, brief(why))


def brief(text: str) -> str:
    """A text as a note has it."""
    return text if len(text) <= MAX_NOTE else f"{text[:MAX_NOTE]}…"


def accepted(target: Any) -> list[Any]:
    """The answers that are accepted: one, or each of a list; nulls are none."""
    items = target if isinstance(target, list | tuple) else [target]
    return [item for item in items if item is not None]


def as_text(value: Any) -> str:
    """A target as a model would write it: whole numbers have no point, truth is true or false."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
    return str(value)
