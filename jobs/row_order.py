"""Rows of one window, put into row order with bounded main memory.

The chunks of a window hold its rows in an order that suits the prefix cache. Here they are
written down unordered in an unnamed scratch file, which is mapped into memory, and taken out in
row order a few megabytes at a time: the operating system may drop the mapped pages at any time.
"""

from __future__ import annotations

import mmap
import tempfile
from array import array
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from jobs.errors import OutputError
from jobs.records import WindowSpec

GROUP_ROWS = 4096  # most rows of a group
GROUP_BYTES = 32 << 20  # about so many bytes of rows in a group


class RowOrder:
    """Takes the rows of a window in any order and gives them back in row order.

    Args:
        scratch: an existing folder for the scratch file; nothing of it is left, whatever
            happens to this process.
    """

    def __init__(self, scratch: Path, schema: pa.Schema, window: WindowSpec) -> None:
        self.schema = schema
        self._window = window
        self._batch_of = array("i", [-1]) * window.rows
        self._place_of = array("i", [0]) * window.rows
        self._sources: list[str] = []
        self._batches = 0
        self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
        self._writer = pa.ipc.new_stream(self._file, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._writer.close()
        finally:
            self._file.close()

    def add(self, rows: pa.RecordBatch | pa.Table, source: str) -> None:
        """Take rows; `source` names the file that they come from.

        Raises:
            OutputError: a row lies outside the window, or is there already.
        """
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            for place, row in enumerate(batch.column("row_index").to_pylist()):
                self._note(row, place, source)
            self._writer.write_batch(batch)
            self._sources.append(source)
            self._batches += 1

    def without_known(self, rows: pa.RecordBatch, skip: Collection[int] = ()) -> pa.RecordBatch:
        """Those rows that are not here yet and not in `skip`."""
        keep = [
            row not in skip and self._batch_of[self._offset(row)] < 0
            for row in rows.column("row_index").to_pylist()
        ]
        return rows if all(keep) else rows.filter(pa.array(keep, pa.bool_()))

    def missing(self) -> list[int]:
        """The rows of the window that were not added, ascending."""
        first = self._window.first_row
        return [first + offset for offset, batch in enumerate(self._batch_of) if batch < 0]

    def groups(self) -> Iterator[pa.Table]:
        """All rows that were added, by row_index, in groups of bounded size; ends the adding."""
        self._writer.close()
        self._file.flush()
        size = self._file.tell()
        present = [offset for offset, batch in enumerate(self._batch_of) if batch >= 0]
        if not present:
            return
        rows = max(1, min(GROUP_ROWS, len(present) * GROUP_BYTES // size))
        mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
        with pa.ipc.open_stream(pa.py_buffer(mapped)) as reader:
            batches = list(reader)  # no copy: their buffers lie in the mapping
        for start in range(0, len(present), rows):
            yield self._gather(batches, present[start : start + rows])

    def _gather(self, batches: list[pa.RecordBatch], offsets: list[int]) -> pa.Table:
        """The rows at some offsets of the window, in the order of the offsets."""
        places: dict[int, list[int]] = {}
        targets: dict[int, list[int]] = {}
        for target, offset in enumerate(offsets):
            batch = self._batch_of[offset]
            places.setdefault(batch, []).append(self._place_of[offset])
            targets.setdefault(batch, []).append(target)
        pieces = [batches[batch].take(pa.array(rows)) for batch, rows in places.items()]
        order = [0] * len(offsets)
        for position, target in enumerate(t for some in targets.values() for t in some):
            order[target] = position
        table = pa.Table.from_batches(pieces, self.schema).unify_dictionaries()
        return table.combine_chunks().take(pa.array(order))

    def _note(self, row: int, place: int, source: str) -> None:
        offset = self._offset(row, source)
        if self._batch_of[offset] >= 0:
            known = self._batch_of[offset]
            first = source if known == self._batches else self._sources[known]
            raise OutputError(
                f"row {row} is there twice: in {first} and in {source}; one of the two files "
                "does not belong to this job"
            )
        self._batch_of[offset] = self._batches
        self._place_of[offset] = place

    def _offset(self, row: int, source: str = "a file") -> int:
        offset = row - self._window.first_row
        if not 0 <= offset < self._window.rows:
            last = self._window.first_row + self._window.rows - 1
            raise OutputError(
                f"row {row} in {source} is not of window {self._window.ordinal} "
                f"(rows {self._window.first_row} to {last})"
            )
        return offset
