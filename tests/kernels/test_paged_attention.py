"""Paged attention and the writing of its cache, against the one-query-at-a-time reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import gathered_attention, tiled_attention
from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import AttentionPlan, plan_attention
from kernels.kv_layout import LayerKV
from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention, paged_attention_reference
from kernels.tiled_attention import Tile
from tests.support.cpu_kernels import using, variants

CPU = torch.device("cpu")
EVERY_KERNEL = pytest.mark.parametrize("kernels", ["none", *variants()])


@dataclass
class Case:
    """A layer whose tokens are random, whose other slots are NaN, and a step over it."""

    queries: torch.Tensor
    kv: LayerKV
    metadata: AttentionMetadata
    kernels: str

    @classmethod
    def build(
        cls,
        lens: list[tuple[int, int]],
        *,
        block_size: int = 8,
        kv_heads: int = 2,
        group: int = 3,
        head_dim: int = 16,
        dtype: torch.dtype = torch.float32,
        kv_dtype: torch.dtype | None = None,
        kernels: str = "none",
        shared: int = 0,
        seed: int = 0,
    ) -> Case:
        """`lens`: (tokens in this step, tokens in the cache after it) of each sequence.

        `kernels` is the library of C++ kernels that computes it; all tables begin with the same
        `shared` blocks.
        """
        torch.manual_seed(seed)
        needed = [-(-context // block_size) for _, context in lens]
        free = list(range(sum(needed) + shared + 3))
        random.Random(seed).shuffle(free)
        kv = LayerKV.allocate(
            len(free), block_size, kv_heads, head_dim,
            dtype=kv_dtype or dtype, by_head=kernels != "none",
        )  # fmt: skip
        kv.keys.fill_(torch.nan)
        kv.values.fill_(torch.nan)
        tables = []
        prefix = [free.pop() for _ in range(shared)]
        for (_, context), blocks in zip(lens, needed, strict=True):
            table = (prefix + [free.pop() for _ in range(blocks)])[:blocks]
            slots = [table[t // block_size] * block_size + t % block_size for t in range(context)]
            keys, values = torch.randn(2, context, kv_heads, head_dim).to(dtype)
            kv_write(keys, values, kv, torch.tensor(slots))
            tables.append([*table, free[0]])  # a table may hold blocks for later tokens
        query_lens, context_lens = zip(*lens, strict=True)
        metadata = AttentionMetadata.build(query_lens, context_lens, tables, block_size, CPU)
        queries = torch.randn(sum(query_lens), kv_heads * group, head_dim).to(dtype)
        return cls(queries, kv, metadata, kernels)

    def plan(self, *windows: int | None) -> AttentionPlan:
        return plan_attention(self.metadata, self.kv, self.queries.shape[1], windows)

    def run(self, window: int | None = None) -> torch.Tensor:
        with using(self.kernels):
            return paged_attention(self.queries, self.kv, self.plan(window), 0.3, window)

    def reference(self, window: int | None = None) -> torch.Tensor:
        return paged_attention_reference(self.queries, self.kv, self.metadata, 0.3, window)


lengths = st.lists(
    st.integers(1, 70).flatmap(
        lambda context: st.tuples(st.one_of(st.just(1), st.integers(1, context)), st.just(context))
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(
    lengths,
    st.sampled_from([8, 16, 32]),
    st.sampled_from([(1, 1), (4, 1), (1, 5), (3, 3)]),
    st.sampled_from([1, 40, 4096]),
    st.lists(st.none() | st.integers(1, 80), min_size=1, max_size=3),
    st.integers(0, 1000),
)
def test_any_mix_of_prefill_chunks_and_decodes(
    lens: list[tuple[int, int]],
    block_size: int,
    heads: tuple[int, int],
    group: int,
    windows: list[int | None],
    seed: int,
) -> None:
    case = Case.build(lens, block_size=block_size, kv_heads=heads[0], group=heads[1], seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered_attention, "_CPU_GROUP_TOKENS", group)
        plan = case.plan(*windows)
    for window in windows:  # the layers of one model share the plan
        ours = paged_attention(case.queries, case.kv, plan, 0.3, window)
        torch.testing.assert_close(ours, case.reference(window), rtol=1e-5, atol=1e-5)


@pytest.mark.quick
@EVERY_KERNEL
@pytest.mark.parametrize("window", [1, 7, 8, 9, 16, 17, 39, 40, 41, 100])
def test_windows_around_the_edges_of_blocks_and_contexts(window: int, kernels: str) -> None:
    case = Case.build([(1, 40), (1, 17), (1, 3), (40, 40), (9, 40), (2, 16)], kernels=kernels)
    torch.testing.assert_close(case.run(window), case.reference(window), rtol=1e-5, atol=1e-5)


@pytest.mark.quick
def test_a_window_is_the_mask_of_transformers() -> None:
    from transformers.masking_utils import sliding_window_causal_mask_function

    window, length = 5, 12
    allowed = sliding_window_causal_mask_function(window)
    case = Case.build([(length, length)], kv_heads=1, group=1)
    keys, values = (t[:length, 0] for t in case.kv.read(case.metadata.block_tables[0]))
    tokens = torch.arange(length)
    mask = allowed(0, 0, tokens[:, None], tokens[None])
    scores = (case.queries[:, 0] @ keys.T * 0.3).masked_fill(~mask, -torch.inf)
    expected = scores.softmax(-1) @ values
    torch.testing.assert_close(case.reference(window)[:, 0], expected)


@pytest.mark.quick
@EVERY_KERNEL
def test_what_lies_before_the_window_is_not_read(kernels: str) -> None:
    """One day its blocks may be given to others, so not even NaN there may matter."""
    case = Case.build([(1, 60), (7, 60), (1, 5)], kernels=kernels)
    window = 11
    expected = case.reference(window)
    for i, first in [(0, 60 - window), (1, 54 - window)]:
        table = case.metadata.block_tables[i]
        for token in range(first):
            for stored in case.kv.by_token():
                stored[table[token // 8], token % 8] = torch.nan
    torch.testing.assert_close(case.run(window), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.quick
def test_only_blocks_that_the_window_touches_are_gathered() -> None:
    case = Case.build([(1, 800), (1, 790)])
    plan = case.plan(None, 20, 20, 800, 10**6)
    assert plan.by_window[None].most_blocks == 2 * 100
    assert plan.by_window[20].most_blocks == 2 * 3
    # No sequence has outgrown these two.
    assert plan.by_window[800] is plan.by_window[10**6] is plan.by_window[None]
    chunk = Case.build([(30, 800)])
    assert chunk.plan(20).by_window[20].most_blocks == 7


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    case = Case.build([(1, 30), (1, 9), (12, 12), (5, 40)], dtype=dtype)
    torch.testing.assert_close(case.run(), case.reference(), rtol=2e-2, atol=2e-2)


@pytest.mark.quick
@EVERY_KERNEL
def test_sequences_that_share_blocks(kernels: str) -> None:
    case = Case.build([(1, 20), (1, 20), (4, 20)], kernels=kernels)
    case.metadata = AttentionMetadata.build(
        [1, 1, 4], [20, 17, 20], [case.metadata.block_tables[0]] * 3, 8, CPU
    )
    torch.testing.assert_close(case.run(), case.reference(), rtol=1e-5, atol=1e-5)


@pytest.mark.quick
@EVERY_KERNEL
def test_queries_may_be_a_strided_view(kernels: str) -> None:
    case = Case.build([(1, 20), (1, 5), (4, 20)], kernels=kernels)
    expected = case.run()
    wider = torch.cat((case.queries, torch.full_like(case.queries, torch.nan)), dim=1)
    case.queries = wider[:, : case.queries.shape[1]]
    assert torch.equal(case.run(), expected)


@settings(deadline=None, max_examples=150)
@given(
    lengths,
    st.sampled_from(variants()),
    st.sampled_from([torch.float32, torch.float16]),
    st.sampled_from([8, 16, 32]),
    st.sampled_from([(1, 1), (4, 1), (1, 5), (3, 3), (1, 14), (1, 60)]),
    st.sampled_from([4, 16, 20, 64, 80]),
    st.integers(0, 9),
    st.sampled_from([64, 128, 1024]),
    st.sampled_from([1, 16, 40, 128]),
    st.none() | st.integers(1, 80),
    st.integers(0, 1000),
)
def test_blocks_are_read_in_place(
    lens: list[tuple[int, int]],
    kernels: str,
    kv_dtype: torch.dtype,
    block_size: int,
    heads: tuple[int, int],
    head_dim: int,
    shared: int,
    run_tokens: int,
    min_shared: int,
    window: int | None,
    seed: int,
) -> None:
    """Any shape, any sharing, runs cut anywhere; all unwritten slots are NaN."""
    case = Case.build(
        lens, block_size=block_size, kv_heads=heads[0], group=heads[1], head_dim=head_dim,
        kv_dtype=kv_dtype, kernels=kernels, shared=shared, seed=seed,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled_attention, "_RUN_TOKENS", run_tokens)
        patch.setattr(tiled_attention, "_MIN_SHARED_TOKENS", min_shared)
        ours = case.run(window)
    torch.testing.assert_close(ours, case.reference(window), rtol=1e-5, atol=1e-5)


def attended(tiles: Sequence[Tile], query: int) -> list[int]:
    """Positions that a query attends to, over all tiles."""
    return sorted(
        token
        for tile in tiles
        for at, first, last in zip(tile.queries, tile.firsts, tile.ends, strict=True)
        if at == query
        for token in range(max(first, tile.start), min(last, tile.start + tile.length))
    )


def plan_of(tables: list[tuple[int, ...]], lens: list[int], block_size: int = 8) -> list[Tile]:
    """Tiles of sequences that decode, of whose blocks nothing is read."""
    metadata = AttentionMetadata.build([1] * len(lens), lens, tables, block_size, CPU)
    kv = LayerKV.allocate(1, block_size, 2, 16, dtype=torch.float32, by_head=True)
    return list(plan_attention(metadata, kv, 6, (None,)).by_window[None].tiles)


@pytest.mark.quick
def test_every_query_attends_to_each_of_its_tokens_once() -> None:
    shared = tuple(range(20))
    lens = [190, 175, 164, 3]
    tables = [(*shared, *range(100 * i, 100 * i + 10)) for i in range(1, 4)] + [(99,)]
    tiles = plan_of(tables, lens)
    assert [attended(tiles, i) for i in range(4)] == [list(range(n)) for n in lens]
    together = [tile for tile in tiles if len(tile.queries) > 1]
    assert [(tile.queries, tile.start, tile.length) for tile in together] == [([0, 1, 2], 0, 160)]


@pytest.mark.quick
def test_groups_within_groups() -> None:
    """All share 16 blocks, two of them 32; the block that two others share is too little."""
    trunk, branch, twig = tuple(range(16)), tuple(range(20, 36)), (40,)
    tables = [
        (*trunk, *branch, 50, 51), (*trunk, *branch, 52), (*trunk, *twig, 53), (*trunk, *twig, 54),
    ]  # fmt: skip
    lens = [265, 262, 140, 138]
    tiles = plan_of(tables, lens)
    assert [attended(tiles, i) for i in range(4)] == [list(range(n)) for n in lens]
    together = {tuple(t.queries): (t.start, t.length) for t in tiles if len(t.queries) > 1}
    assert together == {(0, 1, 2, 3): (0, 128), (0, 1): (128, 128)}


@pytest.mark.quick
def test_short_prefixes_within_long_ones_are_attended_to_with_them() -> None:
    """What all share is too little, but two go on together: they take it with what is theirs."""
    tables = [(0, 1, *range(10, 30)), (0, 1, *range(10, 30)), (0, 1, *range(50, 70))]
    tiles = plan_of(tables, [176, 176, 176])
    together = {tuple(t.queries): (t.start, t.length) for t in tiles if len(t.queries) > 1}
    assert together == {(0, 1): (0, 176)}
    assert attended(tiles, 2) == list(range(176))


@pytest.mark.quick
def test_long_runs_are_cut() -> None:
    tiles = plan_of([tuple(range(400))], [3001])
    assert [(t.start, t.length) for t in tiles] == [(0, 1024), (1024, 1024), (2048, 953)]


@pytest.mark.quick
@pytest.mark.parametrize("queries", [1, 16, 500, 5000])
def test_cuts_cost_little_memory_however_long_the_context(queries: int) -> None:
    """Each cut is a partial result for each of a tile's queries, 16 of them here."""
    metadata = AttentionMetadata.build([queries], [100_000], [range(12_500)], 8, CPU)
    kv = LayerKV.allocate(1, 8, 2, 16, dtype=torch.float32, by_head=True)
    plan = plan_attention(metadata, kv, 6, (None,)).by_window[None]
    assert isinstance(plan, tiled_attention.TilePlan)
    assert sum(len(tile.queries) for tile in plan.tiles) <= max(queries, 512 * 16)
    last = [tile for tile in plan.tiles if tile.queries[-1] == queries - 1]
    assert sum(tile.length for tile in last) == 100_000


@pytest.mark.quick
@pytest.mark.parametrize("kernels", variants())
def test_a_broken_key_breaks_those_that_attend_to_it_and_no_others(kernels: str) -> None:
    case = Case.build([(1, 40), (1, 41), (1, 20)], shared=2, kernels=kernels)
    block = case.metadata.block_tables[1][3]
    case.kv.by_token()[0][block, 2] = torch.nan
    broken = case.run().isnan().flatten(1)
    assert broken[1].all()
    assert not broken[0].any()
    assert not broken[2].any()


@pytest.mark.quick
@pytest.mark.parametrize("kernels", variants())
def test_a_part_of_nothing_but_broken_keys_is_found_out(kernels: str) -> None:
    """The last of 1,025 tokens is a run of its own; without its score the others' look sound."""
    case = Case.build([(1, 1025)], kernels=kernels)
    case.kv.by_token()[0][case.metadata.block_tables[0][128], 0] = torch.nan
    assert case.run().isnan().all()


@pytest.mark.quick
@pytest.mark.parametrize("kernels", variants())
def test_answers_do_not_depend_on_the_number_of_threads(kernels: str) -> None:
    case = Case.build([(1, 300), (1, 290), (40, 200)], shared=20, kernels=kernels)
    threads = torch.get_num_threads()
    answers = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            answers.append(case.run())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])


@pytest.mark.quick
@pytest.mark.parametrize("kernels", variants())
def test_what_float16_costs(kernels: str) -> None:
    """Rounding a key moves a score by 2**-11 of it at the most, a value likewise."""
    exact = Case.build([(1, 200), (30, 60)], head_dim=64, kernels=kernels)
    rounded = Case.build([(1, 200), (30, 60)], head_dim=64, kernels=kernels, kv_dtype=torch.float16)
    error = (rounded.run() - exact.run()).abs().max()
    assert 0 < error < 4e-3


@pytest.mark.quick
def test_slots_of_a_step() -> None:
    metadata = AttentionMetadata.build([1, 3], [6, 5], [[7, 2], [4, 0, 9]], 4, CPU)
    assert metadata.slots.tolist() == [2 * 4 + 1, 4 * 4 + 2, 4 * 4 + 3, 0 * 4 + 0]
    assert metadata.query_starts == (0, 1, 4)


@pytest.mark.quick
def test_kv_write_changes_the_named_slots_only() -> None:
    kv = LayerKV(torch.zeros(3, 2, 1, 4), torch.zeros(3, 2, 1, 4))
    keys, values = torch.randn(2, 2, 1, 4)
    kv_write(keys, values, kv, torch.tensor([5, 0]))
    assert torch.equal(kv.keys[2, 1], keys[0])
    assert torch.equal(kv.values[0, 0], values[1])
    assert kv.keys.count_nonzero() == kv.values.count_nonzero() == 8
