"""Writing the normalized copy, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from jobs import layout
from jobs.job_folder import JobFolder
from jobs.kinds import JobKind
from jobs.planner import WINDOW_BYTES, WINDOW_ROWS, cut, prefix_order
from jobs.reading.blocks import Block
from jobs.records import ChunkSpec, ErrorTally, Plan, RowResult, WindowSpec
from jobs.rows import Row
from jobs.schema import (
    NORMALIZED,
    carried_fields,
    normalized_schema,
    output_schema,
    own_fields,
)
from jobs.tallies import tally_errors

VERSION = 1


class NormalizedWriter:
    """Takes checked rows in input order, and leaves the normalized copy and the plan behind.

    Rows wait in memory until their window is full (by rows, or by bytes). Then those that can be
    answered are written in the planner's order, one row group a chunk, and the refused ones as
    a finished part.

    Args:
        file: takes the normalized copy.
        folder: takes the parts of refused rows.
        carried: carried columns, under the names of the normalized copy.
        model: the job's model, for the refused rows.
        kind: of the job.

    Attributes:
        has_chats: whether a row was written that goes through the chat template.
    """

    def __init__(
        self,
        file: BinaryIO,
        folder: JobFolder,
        *,
        carried: Sequence[pa.Field],
        model: str,
        chunk_rows: int,
        kind: JobKind = JobKind.GENERATE,
        window_rows: int = WINDOW_ROWS,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._folder = folder
        self._model = model
        self._chunk_rows = chunk_rows
        self._window_rows = window_rows
        self._window_bytes = window_bytes
        self._kind = kind
        self._schema = normalized_schema(carried, kind)
        self._carried_schema = pa.schema(carried)
        self._output = output_schema(carried_fields(self._schema), kind)
        # Chunks are small and there are many: statistics and dictionaries would make the file's
        # footer, which every reader loads, larger than it needs to be.
        self._writer = pq.ParquetWriter(
            file, self._schema, compression="zstd", use_dictionary=False, write_statistics=False
        )
        self._rows: list[Row] = []
        self._carried: list[pa.RecordBatch] = []
        self._size = 0
        self._first_row = 0
        self._rejected = 0
        self._errors: dict[str, ErrorTally] = {}
        self.has_chats = False
        self._windows: list[WindowSpec] = []
        self._chunks: list[ChunkSpec] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._writer.close()

    def add(self, block: Block) -> None:
        """Take the next rows."""
        while block.rows:
            room = self._window_rows - len(self._rows)
            head, block = block.slice(0, room), block.slice(room, len(block.rows))
            self._rows.extend(head.rows)
            if head.carried is not None:
                self._carried.append(head.carried)
            self._size += head.size
            if len(self._rows) == self._window_rows or self._size >= self._window_bytes:
                self._close_window()

    def finish(self) -> Plan:
        """Write what is left, and tell what there is to do."""
        if self._rows:
            self._close_window()
        return Plan(
            input_path=layout.input_copy(VERSION),
            windows=tuple(self._windows),
            chunks=tuple(self._chunks),
            total_rows=self._first_row,
            rejected=self._rejected,
            rejected_errors=tuple(self._errors.values()),
        )

    def _close_window(self) -> None:
        window = len(self._windows)
        carried = self._carried_table()
        for indices in cut(prefix_order(self._rows), self._chunk_rows):
            self._writer.write_table(self._chunk(indices, carried), row_group_size=len(indices))
            self._chunks.append(ChunkSpec(len(self._chunks), window, len(indices)))
        refused = [i for i, row in enumerate(self._rows) if row.error is not None]
        rejected = self._write_rejected(window, refused, carried) if refused else None
        self._tally(refused)
        self._windows.append(WindowSpec(window, self._first_row, len(self._rows), rejected))
        self._rejected += len(refused)
        self._first_row += len(self._rows)
        self._rows, self._carried, self._size = [], [], 0

    def _tally(self, refused: Sequence[int]) -> None:
        """Count what was wrong with the refused rows of a window; windows come in order."""
        results = (RowResult(self._first_row + i, error=self._rows[i].error) for i in refused)
        for tally in tally_errors(results):
            first = self._errors.get(tally.code)
            if first is not None:
                tally = replace(first, rows=first.rows + tally.rows)
            self._errors[tally.code] = tally

    def _carried_table(self) -> pa.Table | None:
        if not len(self._carried_schema):
            return None
        return pa.Table.from_batches(self._carried, self._carried_schema).combine_chunks()

    def _chunk(self, indices: Sequence[int], carried: pa.Table | None) -> pa.Table:
        rows = [self._rows[i] for i in indices]
        # In the planner's order chats come first.
        self.has_chats = self.has_chats or rows[0].messages is not None
        columns = [
            [self._first_row + i for i in indices],
            [row.line for row in rows],
            [row.custom_id for row in rows],
            [row.prompt for row in rows],
            [row.messages for row in rows],
            [row.chat for row in rows],
            [row.params for row in rows],
            [row.continuations for row in rows],
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, NORMALIZED, strict=True)]
        return pa.table([*arrays, *_take(carried, indices)], schema=self._schema)

    def _write_rejected(self, window: int, indices: Sequence[int], carried: pa.Table | None) -> str:
        """The refused rows of a window, as finalization publishes them."""
        rows = [self._rows[i] for i in indices]
        errors = [asdict(e) for e in (row.error for row in rows) if e is not None]
        zeros = [0] * len(rows)
        nothing = [None] * len(rows)
        columns = {
            "row_index": [self._first_row + i for i in indices],
            "custom_id": [row.custom_id for row in rows],
            "finish_reason": ["error"] * len(rows),
            "prompt_tokens": zeros,
            "cached_tokens": zeros,
            "completion_tokens": zeros,
            "error": errors,
            "model": [self._model] * len(rows),
        }
        arrays = [
            pa.array(columns.get(field.name, nothing), field.type)
            for field in own_fields(self._kind)
        ]
        table = pa.table([*arrays, *_take(carried, indices)], schema=self._output)
        path = layout.rejected_part(VERSION, window)
        with self._folder.create(path) as file:
            pq.write_table(table, file, compression="zstd")
        return path


def _take(carried: pa.Table | None, indices: Sequence[int]) -> list[pa.ChunkedArray]:
    if carried is None:
        return []
    columns: list[pa.ChunkedArray] = carried.take(pa.array(indices, pa.int64())).columns
    return columns
