"""A step's attention as tiles of the kernel in `kernels.gpu.attention`; nothing here needs triton.

A tile is some queries that attend to one run of one block table. `kernels.gpu.attention_items` says
which attend together; here long runs are cut, so that few sequences occupy the whole device, and
queries that are in several tiles get slots for their partial results.

Where a CUDA graph is to be replayed, `DecodeLimits` alone decide how large every array is and how
many programs are launched. With runs of `ceil(total / target)` tokens or more, `n` items of `total`
tokens make at most `n + target` tiles, however long each of them is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.gpu.attention_items import Items, own_items, ranges, shared_items, worthwhile_groups
from kernels.gpu.attention_limits import (
    INVARIANT_RUN,
    MIN_RUN,
    MIN_WIDE_RUN,
    SPAN,
    WIDE_SHARE,
    AttentionGeometry,
    Capacities,
    DecodeLimits,
    Launch,
    TileKind,
    run_tokens,
    tile_rows,
)
from kernels.gpu.block_tables import BlockTables

_tables = BlockTables()


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where partial results lie: [slots, heads, head_dim] and [slots, heads], float32."""

    partial: torch.Tensor
    lse: torch.Tensor

    @classmethod
    def allocate(cls, num_slots: int, geometry: AttentionGeometry, device: torch.device) -> Scratch:
        shape = num_slots, geometry.num_heads
        return cls(
            torch.empty((*shape, geometry.head_dim), device=device),
            torch.empty(shape, device=device),
        )


@dataclass(frozen=True, slots=True)
class TilePlan:
    """A plan on the device, for every layer that has the same window.

    Attributes:
        arguments: of the operation `paged_attention`: the tensors of `HostTilePlan.arrays` and the
            scratch.
        launch: the last arguments: those of `Launch`, `HostTilePlan.in_order`, and the compute
            capability of the device.
    """

    arguments: tuple[torch.Tensor, ...]
    launch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostTilePlan:
    """A plan on the host.

    Attributes:
        arrays: int32. The numbers of tiles and of merges. Of each tile: its first query, its
            number of queries, where its block list begins, the position of the run's first token,
            its number of tokens, and the slot of its first query, -1 where it writes answers. Of
            each query of a tile: its row among the step's tokens, the first token that it attends
            to and the last one + 1. Of each merge: the row, where its slots begin; the slots in the
            order of their tokens. The blocks that tiles read, table by table.
        capacities: how large each array may get; their sizes where there were no limits.
        kind: which kernels it needs.
        num_slots: how large the scratch must be.
        in_order: tiles go over all their tokens in order and by the same instructions, those that
            some query must not attend to included.
    """

    arrays: tuple[np.ndarray, ...]
    capacities: tuple[int, ...]
    kind: TileKind
    num_slots: int
    in_order: bool
    geometry: AttentionGeometry
    launches: tuple[Launch, ...]

    def on_device(
        self,
        tensors: Sequence[torch.Tensor],
        scratch: Scratch | None = None,
        kind: TileKind | None = None,
    ) -> TilePlan:
        """The plan whose arrays are on a device.

        Args:
            tensors: of the `capacities`; a captured graph reads the numbers that they hold when it
                is replayed.
            scratch: at least `num_slots`; other plans may use it before and after.
            kind: with limits, launch for plans of this kind, which is not before the plan's own.
        """
        from kernels.gpu.attention_config import architecture  # it needs triton

        device = tensors[0].device
        if scratch is None:
            scratch = Scratch.allocate(self.num_slots, self.geometry, device)
        launch = self.launches[self.kind if kind is None else kind]
        arguments = *tensors, scratch.partial, scratch.lse
        return TilePlan(arguments, (*launch, self.in_order, architecture(device)))


def plan_attention_tiles(
    metadata: AttentionMetadata,
    geometry: AttentionGeometry,
    window: int | None,
    *,
    batch_invariant: bool = False,
    limits: DecodeLimits | None = None,
) -> HostTilePlan:
    """Cut a step's attention into tiles.

    Args:
        metadata: a sequence without tokens in the cache has no tile, and no answer.
        window: the layers' sliding window in tokens; None attends to everything.
        batch_invariant: an answer is to have the same bits whatever else the step computes, and
            however the prompt was cut into chunks.
        limits: of the CUDA graph that is to compute this step of decodes.
    """
    window = None if window is not None and window >= max(metadata.context_lens) else window
    capacities = None
    if limits is not None:
        _check(metadata, limits)
        capacities = Capacities.of(limits, geometry, batch_invariant)
    groups = []
    if window is None and geometry.can_share:
        most_queries = None if capacities is None else capacities.shared_queries
        align = INVARIANT_RUN if batch_invariant else geometry.block_size
        groups = worthwhile_groups(metadata, geometry.block_size, align, most_queries)
    most = max(metadata.query_len(i) for i in range(metadata.num_sequences))
    if groups:
        largest = max(len(group.members) for group, _, _ in groups)
        most = max(most, largest if limits is None else limits.max_seqs)
    rows = tile_rows(geometry, most, batch_invariant)
    tile_queries = rows[0] // geometry.group

    begins = np.zeros(metadata.num_sequences, dtype=np.int64)
    for group, _, end in groups:
        begins[list(group.members)] = end
    align = SPAN if batch_invariant else geometry.block_size
    items = own_items(metadata, begins, window, tile_queries, align)
    num_own = len(items.counts)
    if groups:
        items = items.and_those_of(shared_items(metadata, groups, tile_queries))
    is_shared = np.arange(len(items.counts)) >= num_own
    tiles = _cut(items, is_shared, geometry, batch_invariant)
    merged = (np.bincount(tiles.items, minlength=len(items.counts)) > 1) | is_shared
    merged[:num_own] |= begins[items.tables[:num_own]] > 0

    slots, num_slots, merges = _merges(items, tiles, merged)
    blocks, origins = _blocks(metadata, items, geometry.block_size)
    first_queries = np.cumsum(items.counts) - items.counts
    columns = (
        first_queries[tiles.items],
        items.counts[tiles.items],
        origins[items.tables[tiles.items]] + tiles.starts // geometry.block_size,
        tiles.starts,
        tiles.stops - tiles.starts,
        slots,
    )
    counts = np.array([len(slots), len(merges[0])])
    parts = (counts, np.stack(columns, axis=1).ravel(), items.rows, items.firsts, items.ends)
    arrays = tuple(part.astype(np.int32) for part in (*parts, *merges, blocks))
    kind = TileKind.SHARED if groups else TileKind.SPLIT if num_slots else TileKind.ALONE
    if limits is None or capacities is None:
        launch = Launch(max(1, len(slots)), len(merges[0]), *rows)
        sizes, launches = tuple(map(len, arrays)), (launch,) * len(TileKind)
    else:
        sizes, num_slots = capacities.of_arrays(), capacities.slots
        launches = tuple(
            capacities.launch(kind, limits, geometry, batch_invariant) for kind in TileKind
        )
    return HostTilePlan(arrays, sizes, kind, num_slots, batch_invariant, geometry, launches)


def _blocks(
    metadata: AttentionMetadata, items: Items, block_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The blocks that items read, and of each table where its first block would lie among them."""
    stops = -(-np.array(metadata.context_lens) // block_size)
    starts = stops.copy()
    np.minimum.at(starts, items.tables, items.starts // block_size)
    blocks, begins = _tables.flat(metadata.block_tables, starts.tolist(), stops.tolist())
    return blocks, begins - starts


def _check(metadata: AttentionMetadata, limits: DecodeLimits) -> None:
    assert metadata.num_tokens == metadata.num_sequences <= limits.max_seqs, "decodes alone"
    assert max(metadata.context_lens) <= limits.max_context


class _Tiles(NamedTuple):
    """The most work first; arrays of int64, [tiles]: the item, and the tokens of the run."""

    items: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def _cut(
    items: Items, is_shared: np.ndarray, geometry: AttentionGeometry, batch_invariant: bool
) -> _Tiles:
    """Runs that are no longer than they may be."""
    bases, lengths = items.starts, items.stops - items.starts
    if batch_invariant:
        bases = bases // INVARIANT_RUN * INVARIANT_RUN
        runs = np.full_like(bases, INVARIANT_RUN)
    else:
        wide = items.counts > 1
        totals = np.where(is_shared, lengths @ is_shared, lengths @ ~is_shared)
        targets = np.where(wide, -(-geometry.target // WIDE_SHARE), geometry.target)
        runs = run_tokens(totals, targets, np.where(wide, MIN_WIDE_RUN, MIN_RUN))
    of, part = ranges(-((bases - items.stops) // runs))
    starts = np.maximum(bases[of] + part * runs[of], items.starts[of])
    stops = np.minimum(bases[of] + (part + 1) * runs[of], items.stops[of])
    order = np.argsort(-(stops - starts) * items.counts[of], kind="stable")
    return _Tiles(of[order], starts[order], stops[order])


def _merges(
    items: Items, tiles: _Tiles, merged: np.ndarray
) -> tuple[np.ndarray, int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Slots of partial results, and which of them make each answer.

    Args:
        merged: the items whose queries are in several tiles.

    Returns:
        Each tile's first slot, -1 where it has none; the number of slots; and of the merges the
        rows, where the slots of each begin, and the slots.
    """
    chosen = np.flatnonzero(merged[tiles.items])
    counts = items.counts[tiles.items[chosen]]
    first_slots = np.cumsum(counts) - counts
    slots = np.full(len(tiles.items), -1, dtype=np.int64)
    slots[chosen] = first_slots
    tile, place = ranges(counts)
    first_queries = (np.cumsum(items.counts) - items.counts)[tiles.items[chosen]]
    query, starts = first_queries[tile] + place, tiles.starts[chosen][tile]
    # Where a query attends to none of a tile's tokens, it has no result. How many of its tiles are
    # like this depends on the others of its prompt, and the order of its sums must not.
    has_result = (items.firsts[query] < tiles.stops[chosen][tile]) & (items.ends[query] > starts)
    rows = items.rows[query]
    order = np.lexsort((starts, rows))
    order = order[has_result[order]]
    rows = rows[order]
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    ends = np.array([len(rows)] if len(rows) else [], dtype=np.int64)
    slot_lists = (first_slots[tile] + place)[order]
    return slots, int(counts.sum()), (rows[begins], np.concatenate((begins, ends)), slot_lists)
