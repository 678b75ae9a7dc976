"""How many rows of a Parquet file are decoded at a time, so that they take bounded memory.

The metadata tell how many bytes a row group takes as it is encoded. Where a column is encoded as
a dictionary, its values are there once, however many rows repeat them: a system prompt of 1 MB
in each of a million rows takes a few bytes a row in the file, and 1 MB a row in memory. How long
the values are is seen only in the dictionary itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.reading.blocks import BLOCK_BYTES, BLOCK_ROWS
from jobs.reading.row_groups import RowGroup

BATCH_BYTES = 16 << 20  # of a batch in which each value is the longest of its dictionary
_PROBE_ROWS = 64


def batch_rows(
    info: RowGroup,
    group: int,
    columns: list[str],
    reopen: Callable[[list[str]], AbstractContextManager[pq.ParquetFile]],
) -> int:
    """Rows of a row group that may be decoded at once, 1 to `BLOCK_ROWS`.

    Args:
        group: its number.
        columns: top-level names of the columns that will be read.
        reopen: opens the file once more, with these leaf columns as Arrow dictionaries.
    """
    if info.num_rows <= 0:
        return BLOCK_ROWS
    # Numbers that repeat themselves take next to nothing in the file.
    decoded = sum(leaf.num_values * 8 for leaf in info.leaves if not leaf.is_text)
    average: int = max(1, info.total_bytes // info.num_rows, decoded // info.num_rows)
    rows = min(BLOCK_ROWS, info.num_rows, max(1, BLOCK_BYTES // average))
    suspects = dict(_suspects(info, columns, rows))
    if not suspects:
        return int(rows)
    with reopen(list(suspects)) as file:
        tops = [name for name in columns if any(_is_in(path, name) for path in suspects)]
        probe = next(file.iter_batches(_PROBE_ROWS, [group], tops, use_threads=False), None)
        schema = file.schema_arrow
    worst = 0
    for path, (values_a_row, encoded_bytes) in suspects.items():
        longest = None if probe is None else _longest(probe, schema, path)
        worst += values_a_row * (encoded_bytes if longest is None else longest)
    return int(min(rows, max(1, BATCH_BYTES // max(1, worst))))


def _suspects(
    info: RowGroup, columns: list[str], rows: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Leaf columns whose dictionaries might hold values too long for so many rows.

    Yields their path, with values a row (rounded up) and encoded bytes.
    """
    for leaf in info.leaves:
        if not leaf.is_text or not leaf.has_dictionary:
            continue
        values_a_row = -(-leaf.num_values // info.num_rows)
        # A value is no longer than all of them together.
        if rows * values_a_row * leaf.encoded_bytes <= BATCH_BYTES:
            continue
        if any(_is_in(leaf.path, name) for name in columns):
            yield leaf.path, (values_a_row, leaf.encoded_bytes)


def _is_in(path: str, column: str) -> bool:
    return path == column or path.startswith(f"{column}.")


def _longest(probe: pa.RecordBatch, schema: pa.Schema, path: str) -> int | None:
    """Bytes of the longest value in a leaf's dictionary; None where none was found.

    Names may have dots in them, so a path may be that of another column or field.
    """
    top = max((name for name in schema.names if _is_in(path, name)), key=len)
    names = path[len(top) :].split(".")
    array = probe.column(top)
    while not isinstance(array, pa.DictionaryArray):
        if pa.types.is_struct(array.type):
            # Lists add names of their own to the path, which differ among writers.
            known = [i for i, name in enumerate(names) if name in array.type.names]
            if not known:
                return None
            names = names[known[0] :]
            array = array.field(names[0])
        elif hasattr(array, "values"):
            array = array.values
        else:
            return None
    longest = pc.max(pc.binary_length(array.dictionary)).as_py()
    return None if longest is None else int(longest)
