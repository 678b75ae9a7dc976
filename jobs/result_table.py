"""Outcomes of rows as Arrow tables of the schema `RESULT`.

Arrow is the form in which finished rows are spooled, kept and published. Log probabilities are
why it matters: 512 tokens with their 20 likeliest take megabytes as Python objects, and a tenth
of that as columns. They are built column by column, with no object in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, TypeVar

import pyarrow as pa

from jobs.records import (
    Choice,
    ContinuationScore,
    RowErrorInfo,
    RowResult,
    TokenLogprob,
    TopLogprob,
)
from jobs.schema import CHOICES, EMBEDDING, ERROR, LOGPROBS, RESULT, SCORES

_NESTED = frozenset({"error", "choices", "logprobs", "prompt_logprobs", "scores", "embedding"})
_TOP = LOGPROBS.value_type.field("top").type
_Item = TypeVar("_Item")


def result_table(results: Iterable[RowResult]) -> pa.Table:
    """Results as a table, in their order."""
    rows = list(results)
    columns: dict[str, Any] = {
        name: [getattr(row, name) for row in rows] for name in RESULT.names if name not in _NESTED
    }
    errors = [None if row.error is None else asdict(row.error) for row in rows]
    columns["error"] = pa.array(errors, ERROR)
    columns["choices"] = _choices([row.choices for row in rows])
    columns["logprobs"] = _logprobs([row.logprobs for row in rows])
    columns["prompt_logprobs"] = _logprobs([row.prompt_logprobs for row in rows])
    columns["scores"] = _scores([row.scores for row in rows])
    columns["embedding"] = _floats([row.embedding for row in rows], EMBEDDING)
    return pa.table(columns, schema=RESULT)


def failed_rows(results: pa.Table) -> list[RowResult]:
    """Number and error of each row that has no answer."""
    failed = results.select(["row_index", "error"]).filter(results["error"].is_valid())
    return [
        RowResult(row["row_index"], error=RowErrorInfo(**row["error"]))
        for row in failed.to_pylist()
    ]


def _choices(rows: Sequence[tuple[Choice, ...] | None]) -> pa.Array:
    def build(choices: list[Choice]) -> list[pa.Array]:
        return [
            pa.array([c.text for c in choices], pa.string()),
            pa.array([c.finish_reason for c in choices], pa.string()),
            pa.array([c.completion_tokens for c in choices], pa.int64()),
            _logprobs([c.logprobs for c in choices]),
        ]

    return _lists(rows, CHOICES, build)


def _scores(rows: Sequence[tuple[ContinuationScore, ...] | None]) -> pa.Array:
    def build(scores: list[ContinuationScore]) -> list[pa.Array]:
        values = [s.token_logprobs for s in scores]
        return [
            pa.array([s.logprob for s in scores], pa.float64()),
            pa.array([len(v) for v in values], pa.int32()),
            pa.array([s.is_greedy for s in scores], pa.bool_()),
            _floats(values, SCORES.value_type.field("token_logprobs").type),
        ]

    return _lists(rows, SCORES, build)


def _floats(rows: Sequence[array[float] | None], kind: pa.DataType) -> pa.Array:
    """A column of lists of float32."""
    if all(row is None for row in rows):
        return pa.array([None] * len(rows), kind)
    offsets = [0, *accumulate(0 if row is None else len(row) for row in rows)]
    data = pa.py_buffer(b"".join(row.tobytes() for row in rows if row is not None))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.Array.from_buffers(pa.float32(), offsets[-1], [None, data]),
        type=kind,
        mask=pa.array([row is None for row in rows], pa.bool_()),
    )


def _logprobs(rows: Sequence[tuple[TokenLogprob, ...] | None]) -> pa.Array:
    def build(tokens: list[TokenLogprob]) -> list[pa.Array]:
        return [
            pa.array([t.token_id for t in tokens], pa.int32()),
            pa.array([t.token for t in tokens], pa.string()),
            pa.array([t.bytes for t in tokens], pa.binary()),
            pa.array([t.logprob for t in tokens], pa.float32()),
            _lists([t.top for t in tokens], _TOP, build_top),
        ]

    def build_top(tokens: list[TopLogprob]) -> list[pa.Array]:
        return [
            pa.array([t.token_id for t in tokens], pa.int32()),
            pa.array([t.token for t in tokens], pa.string()),
            pa.array([t.logprob for t in tokens], pa.float32()),
        ]

    return _lists(rows, LOGPROBS, build)


def _lists(
    rows: Sequence[Sequence[_Item] | None],
    kind: pa.DataType,
    build: Callable[[list[_Item]], list[pa.Array]],
) -> pa.Array:
    """A column of lists of structs; `build` makes the struct's columns of all items together."""
    if all(row is None for row in rows):
        return pa.array([None] * len(rows), kind)
    offsets = [0, *accumulate(0 if row is None else len(row) for row in rows)]
    items = build([item for row in rows if row is not None for item in row])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.StructArray.from_arrays(items, fields=list(kind.value_type)),
        type=kind,
        mask=pa.array([row is None for row in rows], pa.bool_()),
    )
