"""The pieces that the C++ kernel computes a step's attention in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Tile(NamedTuple):
    """Queries that attend to tokens of one run of blocks.

    A tuple, as a step makes hundreds: a frozen dataclass takes much longer to make.

    Attributes:
        queries: rows among the step's tokens, in the order of their positions.
        firsts, ends: the tokens that each query attends to.
        blocks: the run.
        start: position of the run's first token.
        length: tokens of the run that some query attends to, counted from `start`.
        phase: tiles of one phase are computed after all those of the phases before.
    """

    queries: Sequence[int]
    firsts: Sequence[int]
    ends: Sequence[int]
    blocks: Sequence[int]
    start: int
    length: int
    phase: int = 0


@dataclass(frozen=True, slots=True)
class PartialResults:
    """Where tiles leave what is not an answer yet; a slot holds that of one query.

    Attributes:
        slots: for each tile the slot of its first query, those of the others follow; -1 where it
            computes answers.
        sources: for each query of each tile the slot that it goes on from, -1 for none; empty
            where none goes on.
        num_slots: how many slots there are.
        merges: query -> the slots whose results are merged into its answer.
    """

    slots: Sequence[int]
    sources: Sequence[int]
    num_slots: int
    merges: Mapping[int, Sequence[int]]

    @classmethod
    def to_merge(cls, tiles: Sequence[Tile], num_tokens: int) -> PartialResults:
        """Of each query that is in several tiles."""
        parts = [0] * num_tokens
        for tile in tiles:
            for query in tile.queries:
                parts[query] += 1
        slots: list[int] = []
        merges: dict[int, list[int]] = {}
        num_slots = 0
        for tile in tiles:
            slot = -1
            if any(parts[query] > 1 for query in tile.queries):
                slot = num_slots
                num_slots += len(tile.queries)
                for place, query in enumerate(tile.queries, slot):
                    merges.setdefault(query, []).append(place)
            slots.append(slot)
        return cls(slots, (), num_slots, merges)
