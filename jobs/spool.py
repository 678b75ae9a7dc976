"""Finished rows of a chunk that still runs, as immutable Arrow IPC stream segments.

A worker that dies loses at most the rows since its last segment. Whoever claims the chunk next
reads the segments of all earlier leases and computes only the rest.

A stream, not an Arrow file or Parquet: every complete batch of a torn stream can be read, while
the other two are unreadable without their last bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from jobs import layout
from jobs.job_folder import JobFolder
from jobs.schema import RESULT

log = logging.getLogger("pagemill.spool")

BATCH_ROWS = 64  # what one torn batch can cost at most
_FINGERPRINT = b"pagemill.fingerprint"
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

    def write(self, results: pa.Table) -> None:
        """Write one segment; it is on the disk when this returns. No results, no segment.

        Raises:
            StorageError: the segment cannot be written; nothing of it is left behind.
        """
        if not results.num_rows:
            return
        path = layout.spool_segment(self._chunk_id, self._epoch, self._next)
        with (
            self._folder.create(path) as file,
            pa.ipc.new_stream(file, self._schema) as writer,
        ):
            for batch in results.to_batches(max_chunksize=BATCH_ROWS):
                writer.write_batch(batch.cast(self._schema))
        self._next += 1


def read_spool(
    folder: JobFolder,
    chunk_id: str,
    fingerprint: str | None,
    skip_errors: Collection[str] = (),
) -> pa.Table:
    """Every spooled row of a chunk, once, as a table of the schema `RESULT`.

    Args:
        fingerprint: only segments that bear it are read; None reads all of them.
        skip_errors: error codes; rows that have one of them are left out.

    Where two segments hold a row, the one of the newer lease, then the later segment, wins: a
    newer lease computes a row again only where it could not adopt it.
    Segments that are damaged are passed over with a warning: their rows are computed again.

    Raises:
        StorageUnavailable: the storage could not be read.
    """
    segments = sorted(folder.files(layout.spool_folder(chunk_id), "*.arrow"), key=_age)
    batches = [b for path in segments for b in _read_segment(folder, path, fingerprint)]
    table = pa.Table.from_batches(batches, RESULT)
    places = {row: place for place, row in enumerate(table["row_index"].to_pylist())}
    if len(places) < table.num_rows:
        table = table.take(pa.array(places.values(), pa.int64()))
    if skip_errors:
        codes = pc.struct_field(table["error"], "code")
        skipped = pc.is_in(codes, pa.array(skip_errors, pa.string()))
        table = table.filter(pc.invert(skipped))
    return table


def _age(path: str) -> tuple[int, int]:
    match = _SEGMENT.fullmatch(PurePosixPath(path).name)
    return (int(match[1]), int(match[2])) if match else (1 << 62, 0)


def _read_segment(
    folder: JobFolder, path: str, fingerprint: str | None
) -> Iterator[pa.RecordBatch]:
    """A segment's complete batches; none where the fingerprint is another one."""
    try:
        with folder.open(path) as file, pa.ipc.open_stream(file) as reader:
            metadata = reader.schema.metadata or {}
            if fingerprint is not None and metadata.get(_FINGERPRINT) != fingerprint.encode():
                return
            if not reader.schema.equals(RESULT):
                log.warning("%s is of another version of pagemill and is passed over", path)
                return
            for batch in reader:
                batch.validate(full=True)
                yield batch.cast(RESULT)
    except MemoryError:  # Arrow's own, too, which is one of its exceptions
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        log.warning("%s is torn or unreadable (%s); its other rows are lost", path, error)
