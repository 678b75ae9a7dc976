"""How much the pages of a Parquet file take, told by their headers before any is decoded.

A page is decoded as a whole, so that the greatest one says what memory a file takes. The file's
metadata do not tell: they have the size of all pages of a column together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow.parquet as pq

from jobs.errors import InputError

MAX_PAGE_BYTES = 256 << 20
MAX_VALUES_A_ROW = 1 << 22
_HEADER_BYTES = 8 << 10  # more than most headers take
_MAX_HEADER_BYTES = 16 << 20

# Types of Thrift's compact protocol, in which headers are written.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_LISTS = (9, 10)


def check_page_sizes(
    name: str,
    reopen: Callable[[], AbstractContextManager[Any]],
    metadata: pq.FileMetaData,
    group: int,
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
    info = metadata.row_group(group)
    for i in range(info.num_columns):
        leaf = info.column(i)
        path = leaf.path_in_schema
        if not any(path == column or path.startswith(f"{column}.") for column in columns):
            continue
        # Some few values may be written very short: one that is there a million times in a row.
        values_a_row = leaf.num_values // max(1, info.num_rows)
        if values_a_row > MAX_VALUES_A_ROW:
            raise InputError(
                f"{name}: the column {path!r} has {values_a_row:,} values a row in row group "
                f"{group}; the limit is {MAX_VALUES_A_ROW:,}"
            )
        # Of few columns the pages have to be looked at: none is larger than all together.
        if leaf.total_uncompressed_size <= MAX_PAGE_BYTES:
            continue
        with reopen() as stream:
            size = max(_sizes(stream, leaf), default=0)
        if size > MAX_PAGE_BYTES:
            raise InputError(
                f"{name}: the column {path!r} has {size >> 20:,} MiB in one page of row group "
                f"{group}; the limit is {MAX_PAGE_BYTES >> 20} MiB. Write it with smaller row "
                "groups, or (pyarrow) with use_dictionary=False"
            )


def _sizes(stream: Any, leaf: pq.ColumnChunkMetaData) -> Iterator[int]:
    at = leaf.data_page_offset
    if leaf.has_dictionary_page and 0 < leaf.dictionary_page_offset < at:
        at = leaf.dictionary_page_offset
    end = at + leaf.total_compressed_size
    while at < end:
        header, uncompressed, compressed = _header(stream, at)
        yield uncompressed
        at += header + compressed


def _header(stream: Any, at: int) -> tuple[int, int, int]:
    """The length of the header at a place, and the two sizes that it tells."""
    size = _HEADER_BYTES
    while size <= _MAX_HEADER_BYTES:
        stream.seek(at)
        reader = _Compact(stream.read(size))
        try:
            fields = reader.struct()
        except IndexError:
            size *= 16
            continue
        uncompressed, compressed = fields.get(2), fields.get(3)
        if uncompressed is None or compressed is None or min(uncompressed, compressed) < 0:
            break
        return reader.at, uncompressed, compressed
    raise ValueError("a page has no header")


class _Compact:
    """Reads a struct of Thrift's compact protocol.

    Attributes:
        at: where the next byte is.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Its integers by the numbers of their fields; whatever else there is is passed over."""
        if depth > 8:
            raise ValueError("a page has no header")
        found: dict[int, int] = {}
        number = 0
        while (head := self._byte()) & 15 != _STOP:
            number = number + (head >> 4) if head >> 4 else self._signed()
            if (value := self._value(head & 15, depth)) is not None:
                found[number] = value
        return found

    def _value(self, kind: int, depth: int) -> int | None:
        if kind in (_TRUE, _FALSE):
            return None
        if kind < _DOUBLE and kind != _BYTE:
            return self._signed()
        if kind == _STRUCT:
            self.struct(depth + 1)
        elif kind in _LISTS:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            for _ in range(count):
                self._value(head & 15, depth + 1)
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            self.at += {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint()
        else:
            raise ValueError("a page has no header")
        return None

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a page has no header")

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
