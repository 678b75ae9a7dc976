"""Which queries of a step attend to which tokens together, before long runs are cut into tiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.attention_metadata import AttentionMetadata
from kernels.prefix_groups import PrefixGroup, prefix_groups

# Attending together pays from so many shared tokens on: a query's partial results are written and
# read again, 66 KB of Llama-3-8B's, as much as 16 tokens' keys and values, and there is a latency.
MIN_SHARED_TOKENS = 128
# What a group need not read again must be worth a second launch: some 3 microseconds, in which
# 3 TB/s bring the keys and values of 2,000 tokens of Llama-3-8B.
MIN_SAVED_TOKENS = 2048


class Items(NamedTuple):
    """Queries that attend to one run of tokens of one block table; arrays of int64, [items].

    Attributes:
        counts: queries of each item.
        tables: the sequence whose block table is read.
        starts, stops: the run; it starts where a block does.
        rows: the queries of all items, rows among the step's tokens, in the order of positions.
        firsts, ends: the tokens that each of these attends to.
    """

    counts: np.ndarray
    tables: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    rows: np.ndarray
    firsts: np.ndarray
    ends: np.ndarray

    def and_those_of(self, others: Items) -> Items:
        return Items(*map(np.concatenate, zip(self, others, strict=True)))


def ranges(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of `counts[i]` things of each `i`: their `i`, and each one's place among those of its `i`."""
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) - firsts[owners]


def worthwhile_groups(
    metadata: AttentionMetadata, block_size: int, share_align: int, most_queries: int | None
) -> list[tuple[PrefixGroup, int, int]]:
    """Decodes that are to attend together: the group, and from which token to which.

    Args:
        most_queries: how many queries all groups may have together; None for any number.
    """
    starts, contexts = metadata.query_starts, metadata.context_lens
    decodes = [
        i for i, context in enumerate(contexts) if context and starts[i + 1] - starts[i] == 1
    ]
    # A query keeps its own token for itself, so that all have an item of their own.
    usable = [(context - 1) // block_size for context in contexts]
    begins: dict[int, int] = {}
    chosen, queries = [], 0
    for group in prefix_groups(metadata.block_tables, usable, decodes):
        # All members are in the same outer groups, which came before.
        begin = begins.get(group.members[0], 0)
        end = group.last * block_size // share_align * share_align
        members = len(group.members)
        shared = end - begin
        if shared < MIN_SHARED_TOKENS or shared * (members - 1) < MIN_SAVED_TOKENS:
            continue
        if most_queries is not None and queries + members > most_queries:
            continue
        queries += members
        begins.update(dict.fromkeys(group.members, end))
        chosen.append((group, begin, end))
    return chosen


def shared_items(
    metadata: AttentionMetadata, groups: list[tuple[PrefixGroup, int, int]], tile_queries: int
) -> Items:
    """Queries of several sequences on the blocks that these share."""
    counts, tables, starts, stops = [], [], [], []
    rows: list[int] = []
    for group, begin, end in groups:
        for k in range(0, len(group.members), tile_queries):
            members = group.members[k : k + tile_queries]
            rows += (metadata.query_starts[i] for i in members)
            counts.append(len(members))
            tables.append(group.members[0])  # the same for all, so that one table is sent
            starts.append(begin)
            stops.append(end)
    numbers = (np.array(x, dtype=np.int64) for x in (counts, tables, starts, stops, rows))
    per_item = tuple(numbers)
    bounds = (np.repeat(per_item[i], per_item[0]) for i in (2, 3))
    return Items(*per_item, *bounds)


def own_items(
    metadata: AttentionMetadata,
    begins: np.ndarray,
    window: int | None,
    tile_queries: int,
    align: int,
) -> Items:
    """Queries of one sequence on its own tokens; none of a sequence without tokens.

    Args:
        begins: of each sequence, where its own tokens begin.
        tile_queries: the most queries of an item.
        align: runs start at multiples of so many tokens.
    """
    starts = np.array(metadata.query_starts, dtype=np.int64)
    contexts = np.array(metadata.context_lens, dtype=np.int64)
    stops = starts[1:]
    parts = -(-(stops - starts[:-1]) // tile_queries)
    sequences, part = ranges(np.where(contexts > 0, parts, 0))
    first_rows = starts[sequences] + part * tile_queries
    left = stops[sequences] - first_rows
    counts = np.minimum(left, tile_queries)
    first_ends = contexts[sequences] - left + 1
    lows = begins[sequences] if window is None else np.maximum(first_ends - window, 0)

    items, place = ranges(counts)
    ends = first_ends[items] + place
    firsts = lows[items] if window is None else np.maximum(ends - window, 0)
    return Items(
        counts=counts,
        tables=sequences,
        starts=lows // align * align,
        stops=first_ends + counts - 1,
        rows=first_rows[items] + place,
        firsts=firsts,
        ends=ends,
    )
