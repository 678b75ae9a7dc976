"""Thrift's compact protocol, in which Parquet writes its metadata: structs as plain values."""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_LISTS = (9, 10)
_INTEGERS = (4, 5, 6)
_DEEPEST = 16


class CompactReader:
    """Reads values one after the other.

    Every method raises IndexError where the data end too soon, and ValueError where they are none.

    Attributes:
        at: where the next byte is.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Values by the numbers of their fields."""
        found: dict[int, Any] = {}
        number = 0
        while (head := self.field(number)) is not None:
            number, kind = head
            found[number] = self.value(kind, depth + 1, in_field=True)
        return found

    def field(self, before: int) -> tuple[int, int] | None:
        """Number and type of the next field of a struct; None at its end."""
        head = self._byte()
        if head & 15 == 0:
            return None
        return (before + (head >> 4) if head >> 4 else self._signed()), head & 15

    def list_head(self) -> tuple[int, int]:
        """Number and type of the items that follow."""
        head = self._byte()
        return (head >> 4 if head >> 4 < 15 else self._varint()), head & 15

    def value(self, kind: int, depth: int, *, in_field: bool = False) -> Any:
        if depth > _DEEPEST:
            raise ValueError("its metadata are nested too deep")
        if kind in (_TRUE, _FALSE):  # in a field, the type is the value
            return kind == _TRUE if in_field else self._byte() == _TRUE
        if kind in _INTEGERS:
            return self._signed()
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _LISTS:
            count, items = self.list_head()
            return [self.value(items, depth + 1) for _ in range(count)]
        if kind in (_BYTE, _DOUBLE, _BINARY):
            return self._bytes({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint())
        raise ValueError("its metadata cannot be read")

    def _bytes(self, length: int) -> bytes:
        self.at += length
        if self.at > len(self._data):
            raise IndexError
        return self._data[self.at - length : self.at]

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
        raise ValueError("its metadata cannot be read")

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
