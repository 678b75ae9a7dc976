"""The rows of a job as they finish, each once, in no order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jobs import layout
from jobs.errors import OutputNotReady
from jobs.parts import answered, job_schema, open_chunk_inputs, read_batches, read_chunk_input
from jobs.records import ChunkRecord, JobRecord
from jobs.results import open_version
from jobs.row_set import RowSet
from jobs.spool import read_spool
from jobs.storage import Storage
from jobs.store import Store

_AT_ONCE = 100  # chunks that are read at a time


class FinishedRows:
    """Rows of the version that a job works on, from its spools and parts.

    Rows that no chunk computes are never among them: those refused at submit, and in a retry
    those that were answered before.

    Args:
        from_the_start: give those, too, that are finished by now.
    """

    def __init__(
        self, store: Store, storage: Storage, job: JobRecord, *, from_the_start: bool = False
    ) -> None:
        self._store = store
        self._storage = storage
        self._job = job
        self._folder = storage.job(job.folder)
        self._schema = job_schema(self._folder, layout.input_copy(job.version))
        # Chunks up to this one are closed, or among those that may have more to give. Chunks are
        # begun in their order, so a look reads some few of those that come after it.
        self._next = 0
        self._open: set[int] = set()
        # Of chunks that are not closed: rows that were given, and the segments that held them.
        self._given: dict[str, set[int]] = {}
        self._segments: dict[str, list[str]] = {}
        if not from_the_start:
            self._pass_over()

    def new(self) -> Iterator[pa.Table]:
        """The rows that finished since this was called last, as output rows.

        Raises:
            OutputError: a file is missing or damaged.
            StorageUnavailable: the storage cannot be read.
        """
        yield from self._new(self._begun())

    def last(self) -> Iterator[pa.Table]:
        """After the job has ended: `new`, and rows that became error rows only then."""
        yield from self._new(self._all())
        left = RowSet(self._job.total_rows)
        with open_chunk_inputs(self._folder, layout.input_copy(self._job.version)) as copy:
            for chunk in self._read(self._open):
                rows = copy.indices(chunk.ordinal).to_pylist()
                left.add(set(rows) - self._given.get(chunk.id, set()))
        if not len(left):
            return
        try:
            published = open_version(self._storage, self._job_now(), self._job.version)
        except OutputNotReady:  # it failed
            return
        for group in published.groups():
            yield from _unless_empty(left.of(group))

    def _new(self, chunks: Iterator[ChunkRecord]) -> Iterator[pa.Table]:
        for chunk in chunks:
            if chunk.part is not None:
                yield from self._of_part(chunk, chunk.part)
            else:
                yield from self._of_spool(chunk)

    def _begun(self) -> Iterator[ChunkRecord]:
        """Chunks of which there may be more to give by now."""
        yield from self._read(self._open)
        while (batch := self._read(self._coming())) and (
            begun := [chunk.ordinal for chunk in batch if chunk.lease_epoch]
        ):
            # One that was passed over is begun by others sooner or later.
            yield from self._opened(batch[: begun[-1] - self._next + 1])

    def _all(self) -> Iterator[ChunkRecord]:
        """All chunks of which there may be more to give, begun or not."""
        yield from self._read(self._open)
        while batch := self._read(self._coming()):
            yield from self._opened(batch)

    def _coming(self) -> range:
        return range(self._next, min(self._next + _AT_ONCE, self._job.chunks_total))

    def _opened(self, chunks: Sequence[ChunkRecord]) -> Sequence[ChunkRecord]:
        self._next += len(chunks)
        self._open.update(chunk.ordinal for chunk in chunks)
        return chunks

    def _read(self, ordinals: Collection[int]) -> list[ChunkRecord]:
        """As they are now; none if the job is deleted."""
        return self._store.chunks_of(self._job.id, self._job.version, ordinals) if ordinals else []

    def _job_now(self) -> JobRecord:
        return self._store.job(self._job.id)

    def _pass_over(self) -> None:
        for chunk in self._begun():
            if chunk.part is not None:
                self._open.discard(chunk.ordinal)
            else:
                for _ in self._of_spool(chunk):
                    pass

    def _of_part(self, chunk: ChunkRecord, part: str) -> Iterator[pa.Table]:
        batches = list(read_batches(self._folder, part, self._schema))
        given = self._given.pop(chunk.id, set())
        self._segments.pop(chunk.id, None)
        self._open.discard(chunk.ordinal)
        yield from _without(pa.Table.from_batches(batches, self._schema), given)

    def _of_spool(self, chunk: ChunkRecord) -> Iterator[pa.Table]:
        segments = self._folder.files(layout.spool_folder(chunk.id), "*.arrow")
        if segments == self._segments.get(chunk.id, []):
            return
        results = read_spool(self._folder, chunk.id, None)
        given = self._given.setdefault(chunk.id, set())
        for table in _without(answered(self._input(chunk), results, self._job.model), given):
            given.update(table["row_index"].to_pylist())
            yield table
        self._segments[chunk.id] = segments

    def _input(self, chunk: ChunkRecord) -> pa.Table:
        path = layout.input_copy(chunk.version)
        return read_chunk_input(self._folder, path, chunk.ordinal)


def _without(rows: pa.Table, given: set[int]) -> Iterator[pa.Table]:
    known = pa.array(sorted(given), pa.int64())
    yield from _unless_empty(rows.filter(pc.invert(pc.is_in(rows["row_index"], known))))


def _unless_empty(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.num_rows:
        yield rows
