"""Outcomes of rows become columns, and lose nothing on the way."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records import Choice, RowErrorInfo, RowResult, TokenLogprob, TopLogprob
from jobs.result_table import failed_rows, result_table
from jobs.schema import RESULT

pytestmark = pytest.mark.quick

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
TOKEN_ID = st.integers(0, 2**31 - 1)
LOGPROB = st.floats(max_value=0, allow_nan=False, width=32)  # -inf is one, too
TOP = st.builds(TopLogprob, token_id=TOKEN_ID, token=TEXT, logprob=LOGPROB)
TOKEN = st.builds(
    TokenLogprob,
    token_id=TOKEN_ID,
    token=TEXT,
    bytes=st.binary(max_size=4),
    logprob=LOGPROB,
    top=st.lists(TOP, max_size=3).map(tuple),
)
LOGPROBS = st.none() | st.lists(TOKEN, max_size=3).map(tuple)
CHOICE = st.builds(
    Choice,
    text=TEXT,
    finish_reason=st.sampled_from(["stop", "length"]),
    completion_tokens=st.integers(0, 2**40),
    logprobs=LOGPROBS,
)
RESULTS = st.lists(
    st.builds(
        RowResult,
        row_index=st.integers(0, 2**62),
        text=st.none() | TEXT,
        finish_reason=st.sampled_from([None, "stop", "length"]),
        prompt_tokens=st.integers(0, 2**40),
        seed=st.none() | st.integers(0, 2**63 - 1),
        error=st.none()
        | st.builds(
            RowErrorInfo,
            code=TEXT,
            message=TEXT,
            line=st.none() | st.integers(1, 2**40),
            field=st.none() | TEXT,
        ),
        choices=st.none() | st.lists(CHOICE, max_size=3).map(tuple),
        logprobs=LOGPROBS,
    ),
    max_size=6,
)


def as_lists(value: Any) -> Any:
    """Arrow has lists where the records have tuples."""
    if isinstance(value, tuple | list):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return value


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(RESULTS)
def test_a_table_holds_what_the_results_hold(results: list[RowResult]) -> None:
    table = result_table(results)
    table.validate(full=True)

    assert table.schema.equals(RESULT)
    assert table.to_pylist() == [as_lists(dataclasses.asdict(r)) for r in results]
    assert failed_rows(table) == [
        RowResult(r.row_index, error=r.error) for r in results if r.error is not None
    ]


def test_finish_reasons_of_an_enum_are_written_as_their_text() -> None:
    class Reason(StrEnum):
        STOP = "stop"

    choices = (Choice("x", Reason.STOP, 1), Choice("y", Reason.STOP, 1))
    table = result_table([RowResult(0, "x", Reason.STOP, choices=choices)])

    assert table["finish_reason"].to_pylist() == ["stop"]
    assert [c["finish_reason"] for c in table["choices"][0].as_py()] == ["stop", "stop"]
