"""Where the rows of a window come from: refused rows, parts, spools, the version before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from jobs import layout
from jobs.job_folder import JobFolder
from jobs.parts import ChunkInputs, answered, job_schema, open_chunk_inputs, read_batches
from jobs.records import ChunkRecord, RowErrorInfo, RowResult, WindowSpec
from jobs.result_table import result_table
from jobs.row_order import RowOrder
from jobs.spool import read_spool
from jobs.states import ChunkState

WINDOWS_FOLDER = "_windows"

_STOPPED_MESSAGES = {
    "cancelled": "the job was cancelled before this row was answered",
    "expired": "the job's deadline passed before this row was answered",
}


@contextmanager
def gathered(
    folder: JobFolder,
    window: WindowSpec,
    chunks: Sequence[ChunkRecord],
    version: int,
    model: str,
    stop_reason: str | None = None,
) -> Iterator[RowOrder]:
    """All rows of a window that are known so far, each once.

    Rows refused at submit and rows of committed parts are taken as they are. Of every other
    chunk the spooled rows are taken, whatever worker wrote them; with a `stop_reason`
    (`cancelled`, `expired`) the rest of a stopped chunk becomes error rows of that code. Rows
    that this version does not compute come from the file of the version before.

    Raises:
        OutputError: a row is there twice, or a file is missing or damaged.
        StorageUnavailable: the storage cannot be read or written.
    """
    schema = job_schema(folder, layout.input_copy(version))
    scratch = folder.make_folder(WINDOWS_FOLDER)
    try:
        with RowOrder(scratch, schema, window) as order:
            if window.rejected is not None:
                _add_file(order, folder, window.rejected)
            unfinished: set[int] = set()
            with ExitStack() as stack:
                copy: ChunkInputs | None = None
                for chunk in chunks:
                    if chunk.part is not None:
                        _add_file(order, folder, chunk.part)
                        continue
                    copy = copy or stack.enter_context(
                        open_chunk_inputs(folder, layout.input_copy(version))
                    )
                    rows = copy.rows(chunk.ordinal)
                    unfinished |= _add_unfinished(order, folder, chunk, rows, model, stop_reason)
            if window.base is not None:
                for batch in read_batches(folder, window.base, schema):
                    order.add(order.without_known(batch, unfinished), window.base)
            yield order
    except OSError as error:
        raise folder.trouble("merge rows in", scratch, error) from error


def _add_file(order: RowOrder, folder: JobFolder, path: str) -> None:
    for batch in read_batches(folder, path, order.schema):
        order.add(batch, path)


def _add_unfinished(
    order: RowOrder,
    folder: JobFolder,
    chunk: ChunkRecord,
    rows: pa.Table,
    model: str,
    stop_reason: str | None,
) -> set[int]:
    """Add what is known of a chunk that has no part; returns all of its rows."""
    results = read_spool(folder, chunk.id, None)
    indices = rows.column("row_index").to_pylist()
    if stop_reason is not None and chunk.state is ChunkState.STOPPED:
        error = RowErrorInfo(stop_reason, _STOPPED_MESSAGES[stop_reason])
        rest = set(indices) - set(results.column("row_index").to_pylist())
        stopped = result_table(RowResult(r, finish_reason="error", error=error) for r in rest)
        results = pa.concat_tables([results, stopped])
    order.add(answered(rows, results, model), f"chunk {chunk.id}")
    return set(indices)
