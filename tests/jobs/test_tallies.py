"""Errors of many rows, counted by their code."""

from __future__ import annotations

import pytest

from jobs.records import ErrorTally, RowErrorInfo, RowResult
from jobs.tallies import MAX_CHARACTERS, tally_errors

pytestmark = pytest.mark.quick


def failed(
    row: int, code: str, message: str = "bad", line: int | None = None, field: str | None = None
) -> RowResult:
    return RowResult(row, finish_reason="error", error=RowErrorInfo(code, message, line, field))


def test_rows_are_counted_by_code_with_the_first_of_the_input_as_example() -> None:
    found = tally_errors(
        [
            failed(7, "too_long", "7 is", 8, "prompt"),
            failed(2, "nan_logits", "2 is", 3),
            RowResult(1, text="fine"),
            failed(5, "too_long", "5 is", 6, "messages"),
            failed(9, "too_long", "9 is", 10),
        ]
    )

    assert found == (
        ErrorTally("nan_logits", 1, 2, 3, None, "2 is"),
        ErrorTally("too_long", 3, 5, 6, "messages", "5 is"),
    )


def test_no_errors_no_tallies() -> None:
    assert tally_errors([RowResult(1, text="fine")]) == ()
    assert tally_errors([]) == ()


@pytest.mark.parametrize("length", [MAX_CHARACTERS, MAX_CHARACTERS + 1, 100_000])
def test_long_texts_are_cut(length: int) -> None:
    (found,) = tally_errors([failed(0, "x", "m" * length, field="f" * length)])

    for text, letter in ((found.message, "m"), (found.field, "f")):
        assert text is not None
        assert len(text) == MAX_CHARACTERS
        assert text.endswith("…") == (length > MAX_CHARACTERS)
        assert set(text) <= {letter, "…"}
