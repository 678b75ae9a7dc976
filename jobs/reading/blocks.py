"""What readers hand on: checked rows with the columns that they carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from jobs.rows import Row

BLOCK_ROWS = 2048
BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of the input.

    Attributes:
        carried: one row for each of `rows`, under the names of the normalized copy; None where
            the input carries nothing.
    """

    rows: Sequence[Row]
    carried: pa.RecordBatch | None

    def slice(self, start: int, stop: int) -> Block:
        carried = None if self.carried is None else self.carried.slice(start, stop - start)
        return Block(self.rows[start:stop], carried)

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        carried = 0 if self.carried is None else self.carried.nbytes
        return carried + sum(row.size for row in self.rows)


class Reader(Protocol):
    """An input that is open."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def unit(self) -> str:
        """What `Row.line` counts: `line` or `row`."""

    @property
    def size(self) -> int | None:
        """Bytes of the input as stored, where that is known."""

    @property
    def position(self) -> int:
        """Bytes of it that were read so far, about."""

    @property
    def carried(self) -> list[pa.Field]:
        """The carried columns, under the names of the normalized copy."""

    def blocks(self) -> Iterator[Block]:
        """All rows, in order, once.

        Raises:
            InputError: the input cannot be read on.
        """

    def hint(self) -> str:
        """What the input looks like, for the person whose file has no valid row; or ''."""
