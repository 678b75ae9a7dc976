"""How many tiles a step's attention is cut into, and what holds the plans of all steps."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch

from kernels.kv_layout import LayerKV

# Runs are cut so that about so many programs of equal length come to each multiprocessor: two or
# three are there at once, and what is left at the end is a part of the last one.
_PROGRAMS_A_MULTIPROCESSOR = 4
# Tiles of many queries are half as many: one fills a multiprocessor's registers, and each cut costs
# as many partial results as there are queries.
WIDE_SHARE = 2
# Shorter runs are not worth a partial result; of tiles of many queries, as many of these.
MIN_RUN, MIN_WIDE_RUN = 256, 1024
# What runs are multiples of: no span of the kernel is longer.
SPAN = 128
# Where the bits of an answer are not to depend on the batch, runs end at multiples of so many
# tokens, and all tiles have `_MIDDLE_ROWS`.
INVARIANT_RUN = 1024
# Of a tile (queries times heads that share a key-value head), where one query's are too few and
# the most are too many.
_MIDDLE_ROWS = 64


class TileKind(IntEnum):
    """What a plan needs of the kernels; a kind's kernels can also compute the ones before it."""

    ALONE = 0  # each query is in one tile of its own
    SPLIT = 1  # queries are in several tiles, and results are merged
    SHARED = 2  # queries of several sequences share tiles, too


class Launch(NamedTuple):
    """How the kernels are launched.

    Attributes:
        most_tiles, most_merges: no fewer than there are; 0 merges launch nothing.
        block_m: rows of a tile.
        small_m: rows of a tile with few queries, where those are told apart; else 0.
    """

    most_tiles: int
    most_merges: int
    block_m: int
    small_m: int


@dataclass(frozen=True, slots=True)
class AttentionGeometry:
    """What all steps of a model have in common.

    Attributes:
        multiprocessors: of the device.
        kv_bytes: of a number of the cache.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    multiprocessors: int
    kv_bytes: int = 2

    @classmethod
    def of(cls, kv: LayerKV, num_heads: int) -> AttentionGeometry:
        """Of a layer's storage, on whose device it is computed."""
        count, kv_bytes = multiprocessors(kv.keys.device), kv.keys.itemsize
        return cls(num_heads, kv.num_kv_heads, kv.head_dim, kv.block_size, count, kv_bytes)

    @property
    def group(self) -> int:
        """Heads of queries that share a key-value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def least_rows(self) -> int:
        """Of a tile: one query's, and what matrix products need."""
        return max(16, _power_of_two(self.group))

    @property
    def most_rows(self) -> int:
        """Of a tile: as many as the registers hold (`kernels.gpu.attention_config`).

        Numbers of 8 bits are unpacked there; float32 is multiplied without tensor cores.
        """
        rows = {1: 64, 2: 128 if self.head_dim <= 128 else 64, 4: 16}[self.kv_bytes]
        return max(self.least_rows, rows)

    @property
    def target(self) -> int:
        """About how many tiles of a step occupy the device."""
        return -(-self.multiprocessors * _PROGRAMS_A_MULTIPROCESSOR // self.num_kv_heads)

    @property
    def can_share(self) -> bool:
        """Whether every tile of more than one query has room for two."""
        return self.group * 2 <= min(_MIDDLE_ROWS, self.most_rows)

    def rows_for(self, queries: int) -> int:
        """Of a tile of so many queries. Each number is a kernel of its own, so there are few."""
        if queries == 1:
            return self.least_rows
        if queries * self.group <= _MIDDLE_ROWS:
            return min(max(_MIDDLE_ROWS, self.least_rows), self.most_rows)
        return self.most_rows


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Of all steps of decodes alone that one CUDA graph may compute.

    Attributes:
        max_seqs: most sequences.
        max_context: most tokens that one of them may have in the cache.
    """

    max_seqs: int
    max_context: int


@dataclass(frozen=True, slots=True)
class Capacities:
    """What is enough for the plan of every step within `DecodeLimits`.

    Attributes:
        own_tiles: tiles of a query on its own tokens.
        tiles, queries, merges, slots, blocks: of everything.
        shared_queries: queries of tiles that sequences share, each as often as it is in one.
    """

    own_tiles: int
    tiles: int
    queries: int
    shared_queries: int
    merges: int
    slots: int
    blocks: int

    @classmethod
    def of(
        cls, limits: DecodeLimits, geometry: AttentionGeometry, batch_invariant: bool
    ) -> Capacities:
        seqs = limits.max_seqs
        blocks = seqs * -(-limits.max_context // geometry.block_size)
        shared_queries = 2 * seqs
        queries = seqs + shared_queries
        if batch_invariant:
            # A shared tile takes the place of at least one own tile of each of its queries.
            tiles = seqs * -(-limits.max_context // INVARIANT_RUN)
            return cls(tiles, tiles, queries, shared_queries, seqs, tiles, blocks)
        own_tiles = seqs + geometry.target
        # Groups have two members or more and tiles room for two: a group of m members makes at
        # most m items. Cutting makes `target` more tiles, each of the most queries.
        tile_queries = geometry.rows_for(seqs) // geometry.group
        shared_slots = shared_queries + geometry.target * min(tile_queries, seqs)
        return cls(
            own_tiles,
            own_tiles + shared_queries + geometry.target,
            queries,
            shared_queries,
            seqs,
            own_tiles + shared_slots,
            blocks,
        )

    def of_arrays(self) -> tuple[int, ...]:
        """In the order of `HostTilePlan.arrays`."""
        queries, merges = (self.queries,) * 3, (self.merges, self.merges + 1, self.slots)
        return (2, self.tiles * 6, *queries, *merges, self.blocks)

    def launch(
        self,
        kind: TileKind,
        limits: DecodeLimits,
        geometry: AttentionGeometry,
        batch_invariant: bool,
    ) -> Launch:
        """How the plans of a kind, and of those before it, are launched."""
        most_tiles = (limits.max_seqs, self.own_tiles, self.tiles)[kind]
        most_merges = 0 if kind is TileKind.ALONE else self.merges
        queries = limits.max_seqs if kind is TileKind.SHARED else 1
        return Launch(most_tiles, most_merges, *tile_rows(geometry, queries, batch_invariant))


def tile_rows(geometry: AttentionGeometry, queries: int, batch_invariant: bool) -> tuple[int, int]:
    """`block_m` and `small_m` where tiles have up to so many queries."""
    if batch_invariant:
        return min(max(_MIDDLE_ROWS, geometry.least_rows), geometry.most_rows), 0
    rows = geometry.rows_for(queries)
    return rows, geometry.least_rows if rows > geometry.least_rows else 0


def run_tokens(total: np.ndarray, target: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Where to cut runs of `total` tokens: into at most `target` more tiles than runs."""
    runs: np.ndarray = -(-np.maximum(least, -(-total // target)) // SPAN) * SPAN
    return runs


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; elsewhere those of an H100, so that plans are the same in the interpreter."""
    if device.type != "cuda":
        return 132
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _power_of_two(number: int) -> int:
    """The least that is no less."""
    return 1 << (number - 1).bit_length()
