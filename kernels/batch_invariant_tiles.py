"""How attention is cut into tiles so that a query gets the same bits in any batch.

The kernel goes over a tile's run in spans of tokens, with the online softmax. Here all of a query's
spans begin at multiples of their length, and it takes them one after the other. What its tile's
other queries attend to and it does not adds 0 to its sums, and scales them by 1. So it makes no
difference whether its chunk has one token or many.

Sequences that share a prefix still attend to it together: a tile leaves the sums of its queries as
they are, and each query's next tile goes on from them. Merging partial results, as
`kernels.tiled_attention` does, would be another order of sums for a query that shares nothing.
"""

from __future__ import annotations

from kernels.attention_metadata import AttentionMetadata
from kernels.attention_tiles import PartialResults, Tile
from kernels.kv_layout import LayerKV
from kernels.prefix_groups import prefix_groups
from kernels.tiled_attention import TilePlan, most_queries

# Tokens of a span, as in kernels/cpu/attention.cpp; a multiple of every block size.
_SPAN = 64
# Attending together pays from so many tokens on; see `kernels.tiled_attention`.
_MIN_SHARED_TOKENS = 128


def batch_invariant_plan(
    metadata: AttentionMetadata, kv: LayerKV, window: int | None, num_heads: int
) -> TilePlan:
    """As `TilePlan.build`; each query's tiles are a chain, and none is cut for its length."""
    most = most_queries(num_heads // kv.num_kv_heads)
    # Span at which each sequence's own tiles begin, and how many tiles come before them.
    begins, phases = [0] * metadata.num_sequences, [0] * metadata.num_sequences
    tiles: list[Tile] = []
    if window is None:
        tiles += _shared_tiles(metadata, kv.block_size, most, begins, phases)
    for i in range(metadata.num_sequences):
        start, end = metadata.query_starts[i : i + 2]
        for first in range(start, end, most):
            queries = range(first, min(first + most, end))
            tiles.append(
                _own_tile(i, queries, begins[i], phases[i], metadata, kv.block_size, window)
            )
    tiles.sort(key=lambda tile: (tile.phase, -len(tile.queries) * tile.length))
    return TilePlan.of(tuple(tiles), _chained(tiles), kv, num_heads)


def _shared_tiles(
    metadata: AttentionMetadata, block_size: int, most: int, begins: list[int], phases: list[int]
) -> list[Tile]:
    """Tiles of decodes that share whole spans; moves on `begins` and `phases`."""
    tiles: list[Tile] = []
    decodes = [i for i in range(metadata.num_sequences) if metadata.query_len(i) == 1]
    # A query's last tile is its own, which computes the answer: at least its own token is left.
    usable = [(context - 1) // block_size for context in metadata.context_lens]
    for group in prefix_groups(metadata.block_tables, usable, decodes):
        # All members are in the same outer groups, which came before.
        begin, phase = begins[group.members[0]], phases[group.members[0]]
        end = group.last * block_size // _SPAN * _SPAN
        if end - begin < _MIN_SHARED_TOKENS:
            continue
        blocks = metadata.block_tables[group.members[0]][begin // block_size : end // block_size]
        for k in range(0, len(group.members), most):
            queries = [metadata.query_starts[i] for i in group.members[k : k + most]]
            bounds = [begin] * len(queries), [end] * len(queries)
            tiles.append(Tile(queries, *bounds, blocks, begin, end - begin, phase))
        for i in group.members:
            begins[i], phases[i] = end, phase + 1
    return tiles


def _own_tile(
    i: int,
    queries: range,
    begin: int,
    phase: int,
    metadata: AttentionMetadata,
    block_size: int,
    window: int | None,
) -> Tile:
    """Queries of one sequence on all its tokens from `begin` on."""
    # Token of the step -> its position in the sequence, plus 1.
    shift = metadata.context_lens[i] - metadata.query_starts[i + 1] + 1
    ends = [query + shift for query in queries]
    firsts = [begin if window is None else max(0, end - window) for end in ends]
    start, end = firsts[0] // _SPAN * _SPAN, ends[-1]
    blocks = metadata.block_tables[i][start // block_size : -(-end // block_size)]
    return Tile(queries, firsts, ends, blocks, start, end - start, phase)


def _chained(tiles: list[Tile]) -> PartialResults:
    """Each tile goes on from what the one before left of the same query."""
    last_phase = {query: tile.phase for tile in tiles for query in tile.queries}
    left: dict[int, int] = {}  # query -> slot
    slots: list[int] = []
    sources: list[int] = []
    num_slots = 0
    for tile in tiles:
        sources += (left.get(query, -1) for query in tile.queries)
        if last_phase[tile.queries[0]] == tile.phase:
            slots.append(-1)
            continue
        slots.append(num_slots)
        left.update((query, place) for place, query in enumerate(tile.queries, num_slots))
        num_slots += len(tile.queries)
    return PartialResults(slots, sources if num_slots else (), num_slots, {})
