"""What the end of a Parquet file says of its row groups.

Arrow's own view of a column ends the whole process where the metadata are damaged in some ways
(a C++ exception that nobody catches), so they are read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobs.reading.compact import CompactReader

_BYTE_ARRAY = 6
_DICTIONARIES = frozenset({2, 8})  # the encodings PLAIN_DICTIONARY and RLE_DICTIONARY
_ROW_GROUPS = 4  # its field in the file's metadata
_STRUCT = 12


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of plain values in one row group.

    Attributes:
        path: names from the top-level column on, with dots between them.
        is_text: its values have lengths of their own.
        start: where its first page is in the file.
        stored_bytes: of all its pages, compressed.
        encoded_bytes: of all its pages, decompressed.
    """

    path: str
    is_text: bool
    has_dictionary: bool
    num_values: int
    start: int
    stored_bytes: int
    encoded_bytes: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    num_rows: int
    total_bytes: int
    leaves: tuple[Leaf, ...]


def read_row_groups(stream: Any) -> Iterator[RowGroup]:
    """The row groups of a file, in order. Each is decoded when it is asked for.

    Args:
        stream: the file, to be read at any place; not needed any more after this call.

    Raises:
        ValueError: the metadata are damaged; also when a row group is asked for.
    """
    stream.seek(0, 2)
    size = stream.tell()
    stream.seek(size - 8)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(0, size - 8 - length))
    return _decoded(CompactReader(stream.read(length)))


def _decoded(reader: CompactReader) -> Iterator[RowGroup]:
    try:
        number = 0
        while (head := reader.field(number)) is not None:
            number, kind = head
            if number != _ROW_GROUPS:
                reader.value(kind, 0, in_field=True)
                continue
            count, items = reader.list_head()
            if items != _STRUCT:
                raise ValueError("its metadata cannot be read")
            for _ in range(count):
                yield _row_group(reader.struct())
        raise ValueError("its metadata name more row groups than they describe")
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its metadata cannot be read") from error


def _row_group(fields: dict[int, Any]) -> RowGroup:
    return RowGroup(fields[3], fields[2], tuple(_leaf(column[3]) for column in fields[1]))


def _leaf(fields: dict[int, Any]) -> Leaf:
    first, dictionary = fields[9], fields.get(11) or 0
    return Leaf(
        path=b".".join(fields[3]).decode(errors="replace"),
        is_text=fields[1] == _BYTE_ARRAY,
        has_dictionary=not _DICTIONARIES.isdisjoint(fields[2]),
        num_values=fields[5],
        start=dictionary if 0 < dictionary < first else first,
        stored_bytes=fields[7],
        encoded_bytes=fields[6],
    )
