"""Block tables as one array, most of which is known from the step before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class BlockTables:
    """Turns tuples of block ids into arrays, each once for as long as steps hand it on.

    A sequence's table is the same tuple until it changes, which it does once in `block_size` steps.
    Converting all of them anew would take most of the time that planning a step does.
    """

    def __init__(self) -> None:
        # id of a tuple -> the tuple, which holds on to its id, and its array.
        self._known: dict[int, tuple[tuple[int, ...], np.ndarray]] = {}

    def flat(
        self, tables: Sequence[tuple[int, ...]], lengths: Iterable[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first `lengths[i]` blocks of each table, int32, and where each table's begin."""
        known = {}
        for table in tables:
            found = self._known.get(id(table))
            if found is None:
                found = table, np.array(table, dtype=np.int32)
            known[id(table)] = found
        self._known = known
        used = [known[id(table)][1][:length] for table, length in zip(tables, lengths, strict=True)]
        stops = np.cumsum([len(blocks) for blocks in used], dtype=np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), stops))[:-1]
        return np.concatenate([*used, np.empty(0, np.int32)]), starts
