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
                last = _common_blocks(tables, usable, sharing)
                yield PrefixGroup(tuple(sharing), last)
                pending.append((sharing, last))


def _common_blocks(
    tables: Sequence[tuple[int, ...]], usable: Sequence[int], members: list[int]
) -> int:
    """Length of the longest common beginning, which is that of the least and the greatest."""
    low = min(tables[i] for i in members)
    high = max(tables[i] for i in members)
    limit = min(usable[i] for i in members)
    return next((k for k in range(limit) if low[k] != high[k]), limit)
