"""Finding custom ids that are used twice, with 16 bytes a row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

_MAX_SUSPECTS = 10_000  # one pair is enough for the message; many would only cost memory


class CustomIds:
    """The custom ids that were seen, as 64-bit hashes with their lines.

    Equal hashes are a suspicion only; `duplicate` wants to see the ids again.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._lines = array("q")

    def add(self, custom_id: str, line: int) -> None:
        self._hashes.append(hash(custom_id))
        self._lines.append(line)

    def suspects(self) -> frozenset[int]:
        """Hashes that came more than once: those with the earliest repetitions."""
        hashes, lines = _int64(self._hashes), _int64(self._lines)
        order = pc.array_sort_indices(hashes)
        ordered = hashes.take(order)
        same = pc.equal(ordered.slice(1), ordered.slice(0, max(0, len(ordered) - 1)))
        repeated = pa.table(
            {
                "hash": ordered.slice(1).filter(same),
                "line": lines.take(order).slice(1).filter(same),
            }
        )
        first = repeated.sort_by("line").slice(0, _MAX_SUSPECTS)
        return frozenset(first["hash"].to_pylist())

    @staticmethod
    def duplicate(
        suspects: frozenset[int], ids: Iterable[tuple[str | None, int]]
    ) -> tuple[str, int, int] | None:
        """The id that is repeated first, with the lines of its first two uses.

        Args:
            ids: every custom id with its line, in any order.
        """
        lines: dict[str, list[int]] = {}
        for custom_id, line in ids:
            if custom_id is not None and hash(custom_id) in suspects:
                seen = lines.setdefault(custom_id, [])
                seen.append(line)
                if len(seen) > 2:
                    seen.remove(max(seen))
        pairs = [(max(pair), custom_id) for custom_id, pair in lines.items() if len(pair) == 2]
        if not pairs:
            return None
        _, custom_id = min(pairs)
        return custom_id, min(lines[custom_id]), max(lines[custom_id])


def _int64(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
