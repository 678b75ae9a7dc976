"""Finished rows of a chunk that still runs, as immutable Arrow IPC stream segments.

A worker that dies loses at most the rows since its last segment. Whoever claims the chunk next
reads the segments of all earlier leases and computes only the rest.

A stream, not an Arrow file or Parquet: every complete batch of a torn stream can be read, while
the other two are unreadable without their last bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from jobs import layout
from jobs.records import Choice, RowErrorInfo, RowResult, TokenLogprob, TopLogprob
from jobs.schema import RESULT
from jobs.storage import JobFolder

log = logging.getLogger("pagemill.spool")

BATCH_ROWS = 64  # what one torn batch can cost at most
_FINGERPRINT = b"pagemill.fingerprint"
_NESTED = frozenset({"error", "choices", "logprobs"})
_SEGMENT = re.compile(r"e(\d+)-(\d+)\.arrow")


class SpoolWriter:
    """Writes the segments of one lease.

    Args:
        epoch: epoch of the lease; no other writer uses it, so names never meet.
        fingerprint: names everything that decides the answers; see `read_spool`.
    """

    def __init__(self, folder: JobFolder, chunk_id: str, epoch: int, fingerprint: str) -> None:
        self._folder = folder
        self._chunk_id = chunk_id
        self._epoch = epoch
        self._schema = RESULT.with_metadata({_FINGERPRINT: fingerprint.encode()})
        self._next = 0

    def write(self, results: Sequence[RowResult]) -> None:
        """Write one segment; it is on the disk when this returns. No results, no segment.

        Raises:
            StorageError: the segment cannot be written; nothing of it is left behind.
        """
        if not results:
            return
        path = layout.spool_segment(self._chunk_id, self._epoch, self._next)
        with (
            self._folder.create(path) as file,
            pa.ipc.new_stream(file, self._schema) as writer,
        ):
            for batch in result_table(results).to_batches(max_chunksize=BATCH_ROWS):
                writer.write_batch(batch.cast(self._schema))
        self._next += 1


def read_spool(folder: JobFolder, chunk_id: str, fingerprint: str | None) -> dict[int, RowResult]:
    """Every spooled row of a chunk, by row_index.

    Args:
        fingerprint: only segments that bear it are read; None reads all of them.

    Where two segments hold a row, the one of the newer lease, then the later segment, wins: a
    newer lease computes a row again only where it could not adopt it.
    Segments that cannot be read are passed over with a warning: their rows are computed again.
    """
    found: dict[int, RowResult] = {}
    for path in sorted(folder.files(layout.spool_folder(chunk_id), "*.arrow"), key=_age):
        for result in _read_segment(folder, path, fingerprint):
            found[result.row_index] = result
    return found


def result_table(results: Iterable[RowResult]) -> pa.Table:
    """Results as a table of the schema `RESULT`."""
    rows = list(results)
    columns: dict[str, list[Any]] = {
        name: [getattr(row, name) for row in rows] for name in RESULT.names if name not in _NESTED
    }
    columns["error"] = [None if row.error is None else asdict(row.error) for row in rows]
    columns["logprobs"] = [_plain(row.logprobs) for row in rows]
    columns["choices"] = [_plain(row.choices) for row in rows]
    return pa.table(columns, schema=RESULT)


def results_of(batch: pa.RecordBatch) -> Iterator[RowResult]:
    """The rows of a batch of the schema `RESULT`."""
    for row in batch.to_pylist():
        error, choices = row.pop("error"), row.pop("choices")
        yield RowResult(
            **row | {"logprobs": _logprobs(row["logprobs"])},
            error=None if error is None else RowErrorInfo(**error),
            choices=None
            if choices is None
            else tuple(Choice(**c | {"logprobs": _logprobs(c["logprobs"])}) for c in choices),
        )


def _plain(values: Sequence[TokenLogprob | Choice] | None) -> list[dict[str, Any]] | None:
    return None if values is None else [asdict(value) for value in values]


def _logprobs(values: list[dict[str, Any]] | None) -> tuple[TokenLogprob, ...] | None:
    if values is None:
        return None
    return tuple(
        TokenLogprob(**v | {"top": tuple(TopLogprob(**t) for t in v["top"])}) for v in values
    )


def _age(path: str) -> tuple[int, int]:
    match = _SEGMENT.fullmatch(PurePosixPath(path).name)
    return (int(match[1]), int(match[2])) if match else (1 << 62, 0)


def _read_segment(folder: JobFolder, path: str, fingerprint: str | None) -> Iterator[RowResult]:
    """The rows of a segment's complete batches; none where the fingerprint is another one."""
    try:
        with open(folder.at(path), "rb") as file, pa.ipc.open_stream(file) as reader:
            metadata = reader.schema.metadata or {}
            if fingerprint is not None and metadata.get(_FINGERPRINT) != fingerprint.encode():
                return
            if not reader.schema.equals(RESULT):
                log.warning("%s is of another version of pagemill and is passed over", path)
                return
            for batch in reader:
                yield from results_of(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        log.warning("%s is torn or unreadable (%s); its other rows are lost", path, error)
