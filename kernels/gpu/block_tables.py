"""Block tables as one array, most of which is known from the step before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class _Known(NamedTuple):
    """A table, which holds on to its id, and its blocks from `start` on as an array."""

    table: tuple[int, ...]
    start: int
    blocks: np.ndarray


class BlockTables:
    """Turns tuples of block ids into arrays, each once for as long as steps hand it on.

    A sequence's table is the same tuple until it changes, which it does once in `block_size` steps.
    Converting all of them anew would take most of the time that planning a step does. Only what a
    step reads is converted: of a prefix that sequences share, one table.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}  # by the id of the tuple

    def flat(
        self, tables: Sequence[tuple[int, ...]], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The blocks from `starts[i]` to `stops[i]` of each table, int32, and where each begin."""
        known: dict[int, _Known] = {}
        used = []
        for table, start, stop in zip(tables, starts, stops, strict=True):
            found = self._known.get(id(table))
            if found is None or found.start > start:
                found = _Known(table, start, np.array(table[start:], dtype=np.int32))
            known[id(table)] = found
            used.append(found.blocks[start - found.start : stop - found.start])
        self._known = known
        ends = np.cumsum([len(blocks) for blocks in used], dtype=np.int64)
        begins = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
        return np.concatenate([*used, np.empty(0, np.int32)]), begins
