"""The reader of the `gguf` package, without its cost for each token of the vocabulary."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType


class QuickReader(GGUFReader):  # type: ignore[misc]  # the package has no types
    """Reads arrays in one go.

    The package's own way makes three arrays of numpy for each token, each merge and each score:
    seconds for a vocabulary of 50,000. Fields have the same form here.
    """

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        """Size in bytes, the parts, which of them are values, and the types of a field."""
        if raw_type != GGUFValueType.ARRAY or self.byte_order == "S":
            return super()._get_field_parts(orig_offs, raw_type)  # type: ignore[no-any-return]
        raw_element, count = struct.unpack_from("<IQ", self.data, orig_offs)
        element = GGUFValueType(raw_element)
        start = orig_offs + 12
        parts: list[Any]
        if element == GGUFValueType.STRING:
            parts, end = _strings(np.asarray(self.data), start, count)
        elif element in self.gguf_scalar_to_np:
            values = np.asarray(self._get(start, self.gguf_scalar_to_np[element], count))
            parts, end = list(values.reshape(-1, 1)), start + values.nbytes
            if len(parts) != count:
                raise ValueError(f"an array of {count} numbers goes beyond the end of the file")
        else:
            raise ValueError(f"an array of {element.name} cannot be read")
        types = [GGUFValueType.ARRAY, element] if parts else [GGUFValueType.ARRAY]
        return end - orig_offs, parts, list(range(count)), types


def _strings(data: np.ndarray[Any, Any], start: int, count: int) -> tuple[list[Any], int]:
    """The bytes of `count` strings, each after its length, and where they end."""
    view, unpack = data.data, struct.Struct("<Q").unpack_from
    parts = []
    for _ in range(count):
        (length,) = unpack(view, start)
        start += 8 + length
        parts.append(view[start - length : start])
    if start > len(view):
        raise ValueError(f"a list of {count} strings goes beyond the end of the file")
    return parts, start
