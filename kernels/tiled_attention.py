"""Paged attention by the C++ kernel: a step's queries are cut into tiles, blocks stay in place.

A tile is a few queries that attend to one run of blocks. Queries of one prompt that follow each
other share a tile, and so do the queries of sequences that share a prefix (cascade): what is read
once then serves all of them. A query with several runs gets its answer from their partial results.
"""

from __future__ import annotations

import ctypes
import functools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.attention_tiles import PartialResults, Tile
from kernels.cpu.library import find
from kernels.host_tensors import integers
from kernels.kv_layout import LayerKV
from kernels.prefix_groups import prefix_groups

# Rows of a tile: queries times the heads that share a key-value head. More of them share each
# load of a key; fewer fit the first cache.
_TILE_ROWS = 48
# Longer runs are cut, so that a few long sequences occupy all cores. The number of cores does not
# decide it, for then answers would depend on the machine.
_RUN_TOKENS = 1024
# A chunk of a prompt that makes so many tiles occupies all cores and is cut no further: each cut
# costs a partial result for all of its queries, gigabytes where chunk and context are long.
_ENOUGH_TILES = 512

# Attending together pays from so many tokens on, however many sequences share them: a partial
# result costs what a query's attention to 64 or 128 more tokens costs (benchmarks/cascade.py).
_MIN_SHARED_TOKENS = 128

_ADDRESS, _SIZE, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = (_ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _ADDRESS, _FLOAT, _ADDRESS)
_int32 = functools.partial(integers, dtype=torch.int32)


class _Plan(ctypes.Structure):
    """`Plan` of kernels/cpu/attention.cpp."""

    _fields_ = [
        *((name, _SIZE) for name in ("block_size", "num_kv_heads", "group", "head_dim", "is_half")),
        ("num_tiles", _SIZE),
        ("most_rows", _SIZE),
        *((name, _ADDRESS) for name in ("tiles", "queries", "firsts", "ends", "blocks", "sources")),
        *((name, _ADDRESS) for name in ("partial", "maxima", "sums")),
        ("num_phases", _SIZE),
        ("phase_starts", _ADDRESS),
        ("num_merges", _SIZE),
        *((name, _ADDRESS) for name in ("merge_queries", "merge_starts", "merge_slots")),
    ]


@dataclass(frozen=True, slots=True)
class TilePlan:
    """How a step's attention is computed in every layer that has the same window.

    Attributes:
        tiles: what is computed, the most work first.
        tensors: memory that the kernel's own plan points to.
    """

    tiles: tuple[Tile, ...]
    tensors: tuple[torch.Tensor, ...]
    _native: _Plan

    @classmethod
    def build(
        cls, metadata: AttentionMetadata, kv: LayerKV, window: int | None, num_heads: int
    ) -> TilePlan:
        tiles = sorted(
            _tiles(metadata, kv.block_size, window, most_queries(num_heads // kv.num_kv_heads)),
            key=lambda tile: -len(tile.queries) * tile.length,
        )
        partial = PartialResults.to_merge(tiles, metadata.num_tokens)
        return cls.of(tuple(tiles), partial, kv, num_heads)

    @classmethod
    def of(
        cls, tiles: tuple[Tile, ...], partial: PartialResults, kv: LayerKV, num_heads: int
    ) -> TilePlan:
        """Of tiles in the order of their phases."""
        queries, firsts, ends, blocks, *_ = zip(*tiles, strict=True)
        rows: list[int] = []
        num_queries = num_blocks = 0
        for tile, slot in zip(tiles, partial.slots, strict=True):
            rows += (num_queries, len(tile.queries), num_blocks, tile.start, tile.length, slot)
            num_queries += len(tile.queries)
            num_blocks += len(tile.blocks)
        group = num_heads // kv.num_kv_heads
        num_slots, merges = partial.num_slots, partial.merges
        last_phase = tiles[-1].phase
        starts = [bisect_left(tiles, phase, key=_phase) for phase in range(last_phase + 2)]
        tensors = (
            _int32(rows),
            *(
                _int32(list(chain.from_iterable(numbers)))
                for numbers in (queries, firsts, ends, blocks)
            ),
            _int32(partial.sources),
            torch.empty(num_slots * num_heads * (-(-kv.head_dim // 16) * 16)),
            torch.empty(num_slots * num_heads),
            torch.empty(num_slots * num_heads),
            _int32(starts),
            _int32(list(merges)),
            _int32([0, *accumulate(map(len, merges.values()))]),
            _int32([place for places in merges.values() for place in places]),
        )
        addresses = [tensor.data_ptr() for tensor in tensors]
        native = _Plan(
            kv.block_size,
            kv.num_kv_heads,
            group,
            kv.head_dim,
            kv.keys.dtype is torch.float16,
            len(tiles),
            max(len(tile.queries) for tile in tiles) * group,
            *addresses[:9],
            last_phase + 1,
            addresses[9],
            len(merges),
            *addresses[10:],
        )
        return cls(tiles, tensors, native)


def most_queries(group: int) -> int:
    """Of a tile, where `group` heads of queries share a key-value head."""
    return max(1, _TILE_ROWS // group)


def tiled_attention(
    queries: torch.Tensor, kv: LayerKV, plan: TilePlan, scale: float
) -> torch.Tensor:
    """See `kernels.paged_attention.paged_attention`; queries are float32."""
    if queries.stride(2) != 1 or queries.stride(1) != queries.shape[2]:
        queries = queries.contiguous()
    output = torch.empty(queries.shape)
    run = find("paged_attention", *_ARGUMENTS)
    assert run is not None, "only the C++ kernels read blocks head by head"
    run(
        ctypes.addressof(plan._native),
        queries.data_ptr(),
        queries.stride(0),
        kv.keys.data_ptr(),
        kv.values.data_ptr(),
        scale,
        output.data_ptr(),
    )
    return output


def _tiles(
    metadata: AttentionMetadata, block_size: int, window: int | None, tile_queries: int
) -> list[Tile]:
    tiles: list[Tile] = []
    begins = [0] * metadata.num_sequences  # blocks that groups attend to already
    decodes = [i for i in range(metadata.num_sequences) if metadata.query_len(i) == 1]
    if window is None:  # with one, sequences of different length attend to different tokens
        usable = [context // block_size for context in metadata.context_lens]
        for group in prefix_groups(metadata.block_tables, usable, decodes):
            # The outer groups that were taken end here; all members are in the same ones.
            begin = begins[group.members[0]]
            if (group.last - begin) * block_size < _MIN_SHARED_TOKENS:
                continue
            for i in group.members:
                begins[i] = group.last
            for k in range(0, len(group.members), tile_queries):
                members = group.members[k : k + tile_queries]
                tiles += _shared_tiles(members, begin, group.last, metadata, block_size)
    for i in range(metadata.num_sequences):
        start, end = metadata.query_starts[i : i + 2]
        run_tokens = _run_tokens(metadata.context_lens[i], -(-(end - start) // tile_queries))
        for first in range(start, end, tile_queries):
            last = min(first + tile_queries, end)
            tiles += _own_tiles(
                i, range(first, last), begins[i], metadata, block_size, window, run_tokens
            )
    return tiles


def _shared_tiles(
    members: Sequence[int], first: int, last: int, metadata: AttentionMetadata, block_size: int
) -> list[Tile]:
    """Queries of several sequences on the blocks from `first` to `last`, which these share."""
    start, end = first * block_size, last * block_size
    blocks = metadata.block_tables[members[0]][first:last]
    queries = [metadata.query_starts[i] for i in members]
    starts, ends = [start] * len(members), [end] * len(members)
    return _cut(queries, starts, ends, blocks, start, end, block_size, _RUN_TOKENS)


def _own_tiles(
    i: int,
    queries: range,
    begin: int,
    metadata: AttentionMetadata,
    block_size: int,
    window: int | None,
    run_tokens: int,
) -> list[Tile]:
    """Queries of one sequence on its blocks from `begin` on."""
    # Token of the step -> its position in the sequence, plus 1.
    shift = metadata.context_lens[i] - metadata.query_starts[i + 1] + 1
    ends = [query + shift for query in queries]
    firsts = [begin * block_size if window is None else max(0, end - window) for end in ends]
    block = firsts[0] // block_size
    start, end = block * block_size, ends[-1]
    blocks = metadata.block_tables[i][block : -(-end // block_size)]
    return _cut(queries, firsts, ends, blocks, start, end, block_size, run_tokens)


def _run_tokens(context_len: int, num_tiles: int) -> int:
    """Where to cut the runs of a chunk whose queries make `num_tiles` tiles."""
    if context_len <= _RUN_TOKENS:
        return _RUN_TOKENS
    parts = max(1, _ENOUGH_TILES // num_tiles)
    return _RUN_TOKENS * max(1, -(-context_len // (parts * _RUN_TOKENS)))


def _cut(
    queries: Sequence[int],
    firsts: Sequence[int],
    ends: Sequence[int],
    blocks: Sequence[int],
    start: int,
    end: int,
    block_size: int,
    run_tokens: int,
) -> list[Tile]:
    """Tiles whose runs are no longer than `run_tokens`; none for an empty run."""
    if 0 < end - start <= run_tokens:
        return [Tile(queries, firsts, ends, blocks, start, end - start)]
    return [
        Tile(
            queries,
            firsts,
            ends,
            blocks[
                (at - start) // block_size : -(-(min(at + run_tokens, end) - start) // block_size)
            ],
            at,
            min(run_tokens, end - at),
        )
        for at in range(start, end, run_tokens)
    ]


def _phase(tile: Tile) -> int:
    return tile.phase
