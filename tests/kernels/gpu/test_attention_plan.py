"""The tiles of a step: what they cover, and that every step fits what its limits promise."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention_metadata import AttentionMetadata
from kernels.gpu import attention_items
from kernels.gpu.attention_limits import INVARIANT_RUN, AttentionGeometry, DecodeLimits, TileKind
from kernels.gpu.attention_plan import HostTilePlan, plan_attention_tiles

BLOCK = 16
H100 = AttentionGeometry(32, 8, 128, BLOCK, 132)
GEOMETRIES = st.sampled_from(
    (
        H100,
        AttentionGeometry(8, 8, 64, BLOCK, 132),
        AttentionGeometry(71, 1, 64, BLOCK, 8),
        AttentionGeometry(14, 2, 256, BLOCK, 300, 1),
        AttentionGeometry(15, 5, 64, BLOCK, 108, 4),
    )
)


def step(lens, shared=()):
    """A step over (queries, tokens) of each sequence; `shared`: blocks of a common prefix each.

    Sequences whose numbers are as large share as many, and all share the first half of the least.
    """
    queries = [count for count, _ in lens]
    tables = []
    for i, (_, context) in enumerate(lens):
        depth = shared[i] if i < len(shared) else 0
        half = min(shared) // 2 if depth else 0
        prefix = [*range(half), *(10**6 * depth + k for k in range(half, depth))]
        needed = -(-context // BLOCK)
        own = [10**9 + i * 10**6 + k for k in range(needed)]
        tables.append(tuple((prefix + own)[:needed]))
    starts = (0, *accumulate(queries))
    slots = torch.zeros(starts[-1], dtype=torch.int64)
    return AttentionMetadata(starts, tuple(c for _, c in lens), tuple(tables), slots)


def check_covers(plan: HostTilePlan, metadata: AttentionMetadata, window: int | None) -> None:
    """Each query attends to each of its tokens once, in the right block; partial results meet."""
    counts, tiles, rows, firsts, ends, merge_queries, merge_starts, merge_slots, blocks = (
        array.tolist() for array in plan.arrays
    )
    assert counts == [len(tiles) // 6, len(merge_queries)]
    covered, slots = defaultdict(list), defaultdict(list)
    owner = {
        row: i
        for i in range(metadata.num_sequences)
        for row in range(metadata.query_starts[i], metadata.query_starts[i + 1])
    }
    for k in range(counts[0]):
        query, number, block, start, length, slot = tiles[6 * k : 6 * k + 6]
        assert start % BLOCK == 0
        assert length > 0
        of_tile = rows[query : query + number]
        assert firsts[query : query + number] == sorted(firsts[query : query + number])
        assert ends[query : query + number] == sorted(ends[query : query + number])
        for place, row in enumerate(of_tile):
            table = metadata.block_tables[owner[row]]
            first = max(firsts[query + place], start)
            end = min(ends[query + place], start + length)
            if first < end:
                covered[row].append((first, end))
                inside = range(first // BLOCK, -(-end // BLOCK))
                assert [blocks[block + b - start // BLOCK] for b in inside] == [
                    table[b] for b in inside
                ]
                slots[row].append((start, slot + place if slot >= 0 else -1))
    for row, i in owner.items():
        context = metadata.context_lens[i]
        end = context - (metadata.query_starts[i + 1] - 1 - row)
        if context:
            merged = sorted(covered[row])
            assert merged[0][0] == (0 if window is None else max(0, end - window))
            assert merged[-1][1] == end
            assert all(a[1] == b[0] for a, b in pairwise(merged))
    merges = {
        query: merge_slots[merge_starts[j] : merge_starts[j + 1]]
        for j, query in enumerate(merge_queries)
    }
    for row, found in slots.items():
        of_row = [slot for _, slot in sorted(found)]
        assert of_row == merges[row] if row in merges else of_row == [-1]
    assert len(set(merge_slots)) == len(merge_slots), "each slot has one result"
    assert all(0 <= slot < plan.num_slots for slot in merge_slots)
    assert merge_queries == sorted(set(merge_queries))


def check_fits(plan: HostTilePlan, limited: bool) -> None:
    """Everything is within what was promised."""
    assert len(plan.arrays) == len(plan.capacities)
    for array, capacity in zip(plan.arrays, plan.capacities, strict=True):
        assert array.dtype == np.int32
        assert array.ndim == 1
        assert len(array) <= capacity if limited else len(array) == capacity
    for launch in plan.launches[plan.kind :]:
        assert plan.arrays[0][0] <= launch.most_tiles
        assert plan.arrays[0][1] <= launch.most_merges
        most_rows = launch.block_m // plan.geometry.group
        assert plan.arrays[1].reshape(-1, 6)[:, 1].max(initial=0) <= most_rows
        assert launch.small_m == 0 or plan.geometry.group <= launch.small_m < launch.block_m
    if plan.kind is TileKind.ALONE:
        assert plan.arrays[0][1] == 0


chunks = st.integers(1, 6000).flatmap(
    lambda context: st.tuples(st.just(1) | st.integers(1, min(context, 700)), st.just(context))
)


@settings(deadline=None, max_examples=120)
@given(
    st.lists(chunks | st.just((1, 0)), min_size=1, max_size=9),
    st.lists(st.sampled_from((20, 70, 200)), max_size=9),
    st.none() | st.integers(1, 5000),
    GEOMETRIES,
    st.booleans(),
)
def test_tiles_cover_what_each_query_attends_to(lens, shared, window, geometry, batch_invariant):
    metadata = step(lens, shared)

    plan = plan_attention_tiles(metadata, geometry, window, batch_invariant=batch_invariant)

    check_covers(plan, metadata, window)
    check_fits(plan, limited=False)
    assert plan.kind is not TileKind.SHARED or window is None or window >= max(c for _, c in lens)


decodes = st.lists(
    st.tuples(st.just(1), st.integers(0, 60) | st.integers(0, 100_000)), min_size=1, max_size=40
)


@settings(deadline=None, max_examples=150)
@given(
    decodes,
    st.lists(st.sampled_from((20, 70, 1000)), max_size=40),
    st.none() | st.integers(1, 100_000),
    GEOMETRIES,
    st.booleans(),
    st.integers(0, 20),
)
def test_every_step_within_the_limits_fits_the_same_graphs(
    lens, shared, window, geometry, batch_invariant, more
):
    metadata = step(lens, shared)
    limits = DecodeLimits(len(lens) + more, 100_000)
    given_limits = {"batch_invariant": batch_invariant, "limits": limits}

    plan = plan_attention_tiles(metadata, geometry, window, **given_limits)

    check_covers(plan, metadata, window)
    check_fits(plan, limited=True)
    other = plan_attention_tiles(step([(1, 3)]), geometry, None, **given_limits)
    for fixed in ("capacities", "launches", "num_slots"):
        assert getattr(plan, fixed) == getattr(other, fixed)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 5000), min_size=2, max_size=6),
    st.sampled_from((0, 40, 130)),
    st.none() | st.integers(1, 3000),
)
def test_where_a_query_is_cut_does_not_depend_on_the_batch(contexts, shared, window):
    metadata = step([(min(40, c), c) for c in contexts[:1]] + [(1, c) for c in contexts[1:]],
                    [0, *[shared] * (len(contexts) - 1)])  # fmt: skip
    plan = plan_attention_tiles(metadata, H100, window, batch_invariant=True)

    tiles = plan.arrays[1].reshape(-1, 6).tolist()

    assert plan.launches[0][2:] == (64, 0)
    for _, _, _, start, length, _ in tiles:
        assert start // INVARIANT_RUN == (start + length - 1) // INVARIANT_RUN
        assert start % 128 == 0


def test_a_long_decode_is_cut_so_that_it_occupies_the_device():
    plan = plan_attention_tiles(step([(1, 100_000)]), H100, None)
    assert plan.kind is TileKind.SPLIT
    lengths = plan.arrays[1].reshape(-1, 6)[:, 4]
    assert 60 <= len(lengths) <= 66
    assert lengths.max() - np.sort(lengths)[1] < 128


@pytest.mark.parametrize("tokens", [1, 200, 1000])
def test_many_decodes_are_not_cut(tokens):
    plan = plan_attention_tiles(step([(1, tokens)] * 256), H100, None)
    assert plan.kind is TileKind.ALONE
    assert plan.launches[0] == (256, 0, 16, 0)


def test_nested_prefixes_are_tiles_of_their_own():
    metadata = step([(1, 4000)] * 8, [100] * 4 + [200] * 4)
    plan = plan_attention_tiles(metadata, H100, None)
    assert plan.kind is TileKind.SHARED
    tiles = plan.arrays[1].reshape(-1, 6)
    shared = [(number, start, length) for _, number, _, start, length, _ in tiles.tolist()
              if number > 1]  # fmt: skip
    tokens = Counter()
    for number, start, length in shared:
        tokens[number] += length
        assert number == (8 if start < 50 * BLOCK else 4)
    assert tokens == {8: 50 * BLOCK, 4: 50 * BLOCK + 150 * BLOCK}


def test_prefixes_that_save_little_are_not_shared(monkeypatch):
    metadata = step([(1, 400)] * 3, [20] * 3)
    assert plan_attention_tiles(metadata, H100, None).kind is not TileKind.SHARED
    monkeypatch.setattr(attention_items, "MIN_SAVED_TOKENS", 600)
    assert plan_attention_tiles(metadata, H100, None).kind is TileKind.SHARED


def test_a_step_beyond_its_limits_is_refused():
    for lens, limits in (([(1, 9)] * 3, DecodeLimits(2, 9)), ([(1, 9)], DecodeLimits(1, 8))):
        with pytest.raises(AssertionError):
            plan_attention_tiles(step(lens), H100, None, limits=limits)
    with pytest.raises(AssertionError, match="decodes alone"):
        plan_attention_tiles(step([(2, 9)]), H100, None, limits=DecodeLimits(4, 9))


def test_tables_that_change_are_read_anew():
    first, second = step([(1, 40)]), step([(1, 40)])
    second = AttentionMetadata(second.query_starts, second.context_lens, ((7, 8, 9),), second.slots)
    for metadata in (first, second, first):
        plan = plan_attention_tiles(metadata, H100, None)
        assert tuple(plan.arrays[-1].tolist()) == metadata.block_tables[0]


def test_the_blocks_of_a_shared_prefix_are_sent_once():
    """A long prefix of many sequences would else be most of what a step sends the device."""
    shared, own = 128, 3
    tokens = (shared + own) * BLOCK - 5
    metadata = step([(1, tokens)] * 64, [shared] * 64)

    plan = plan_attention_tiles(metadata, H100, None)

    assert plan.kind is TileKind.SHARED
    assert len(plan.arrays[-1]) == shared + 64 * own
    check_covers(plan, metadata, None)


def test_of_a_window_only_the_blocks_within_are_sent():
    metadata = step([(1, 5000), (3, 4000)])

    plan = plan_attention_tiles(metadata, H100, 64)

    assert len(plan.arrays[-1]) <= 2 * (64 // BLOCK + 2)
    check_covers(plan, metadata, 64)
