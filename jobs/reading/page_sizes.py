"""How much the pages of a Parquet file take, told by their headers before any is decoded.

A page is decoded as a whole, so that the greatest one says what memory a file takes. The file's
metadata do not tell: they have the size of all pages of a column together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from jobs.errors import InputError
from jobs.reading.compact import CompactReader
from jobs.reading.row_groups import Leaf, RowGroup

MAX_PAGE_BYTES = 256 << 20
MAX_VALUES_A_ROW = 1 << 22
_HEADER_BYTES = 8 << 10  # more than most headers take
_MAX_HEADER_BYTES = 16 << 20


def check_page_sizes(
    name: str,
    reopen: Callable[[], AbstractContextManager[Any]],
    group: RowGroup,
    columns: list[str],
) -> None:
    """Refuse a row group with a page, or with rows, that would take too much memory.

    Args:
        name: what messages call the file.
        reopen: opens it once more, to be read at any place.
        columns: top-level names of those that will be read.

    Raises:
        InputError: there is such a page.
        ValueError: what should be the header of a page is none.
    """
    for leaf in group.leaves:
        path = leaf.path
        if not any(path == column or path.startswith(f"{column}.") for column in columns):
            continue
        # Some few values may be written very short: one that is there a million times in a row.
        values_a_row = leaf.num_values // max(1, group.num_rows)
        if values_a_row > MAX_VALUES_A_ROW:
            raise InputError(
                f"{name}: the column {path!r} has {values_a_row:,} values a row in a row group; "
                f"the limit is {MAX_VALUES_A_ROW:,}"
            )
        # Of few columns the pages have to be looked at: none is larger than all together.
        if leaf.encoded_bytes <= MAX_PAGE_BYTES:
            continue
        with reopen() as stream:
            size = max(_sizes(stream, leaf), default=0)
        if size > MAX_PAGE_BYTES:
            raise InputError(
                f"{name}: the column {path!r} has {size >> 20:,} MiB in one page; "
                f"the limit is {MAX_PAGE_BYTES >> 20} MiB. Write it with smaller row "
                "groups, or (pyarrow) with use_dictionary=False"
            )


def _sizes(stream: Any, leaf: Leaf) -> Iterator[int]:
    at = leaf.start
    end = at + leaf.stored_bytes
    while at < end:
        header, uncompressed, compressed = _header(stream, at)
        yield uncompressed
        at += header + compressed


def _header(stream: Any, at: int) -> tuple[int, int, int]:
    """The length of the header at a place, and the two sizes that it tells."""
    size = _HEADER_BYTES
    while size <= _MAX_HEADER_BYTES:
        stream.seek(at)
        reader = CompactReader(stream.read(size))
        try:
            fields = reader.struct()
        except IndexError:
            size *= 16
            continue
        uncompressed, compressed = fields.get(2), fields.get(3)
        if not isinstance(uncompressed, int) or not isinstance(compressed, int):
            break
        if min(uncompressed, compressed) < 0:
            break
        return reader.at, uncompressed, compressed
    raise ValueError("a page has no header")
