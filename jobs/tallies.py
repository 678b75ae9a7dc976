"""Errors of many rows, counted by their code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jobs.records import ErrorTally, RowResult

MAX_CHARACTERS = 500  # of a message or a field's name; the row itself holds the whole


def tally_errors(results: Iterable[RowResult]) -> tuple[ErrorTally, ...]:
    """One tally for each error code; its example is the row that comes first in the input."""
    found: dict[str, ErrorTally] = {}
    for result in results:
        error = result.error
        if error is None:
            continue
        tally = found.get(error.code)
        rows = 1 if tally is None else tally.rows + 1
        if tally is not None and tally.row_index < result.row_index:
            found[error.code] = replace(tally, rows=rows)
        else:
            found[error.code] = ErrorTally(
                error.code,
                rows,
                result.row_index,
                error.line,
                None if error.field is None else _cut(error.field),
                _cut(error.message),
            )
    return tuple(found[code] for code in sorted(found))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
