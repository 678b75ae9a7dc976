"""Some rows of a job, by their numbers."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


class RowSet:
    """Numbers of rows, with a byte for each row of the job: there may be many millions.

    Args:
        total: rows that the job has.
    """

    def __init__(self, total: int) -> None:
        self._has = bytearray(total)

    def __len__(self) -> int:
        return self._has.count(1)

    def add(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._has[row] = 1

    def of(self, table: pa.Table) -> pa.Table:
        """Those rows of a table with a `row_index` that are among them."""
        mask = [bool(self._has[row]) for row in table["row_index"].to_pylist()]
        return table.filter(pa.array(mask, pa.bool_()))
