"""Paged attention and the writing of its cache, against the one-query-at-a-time reference."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import gathered_attention
from kernels.attention_metadata import AttentionMetadata
from kernels.kv_layout import LayerKV
from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention, paged_attention_reference, plan_attention

CPU = torch.device("cpu")


@dataclass
class Case:
    """A layer whose tokens are random, whose other slots are NaN, and a step over it."""

    queries: torch.Tensor
    kv: LayerKV
    metadata: AttentionMetadata

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
        seed: int = 0,
    ) -> Case:
        """`lens`: (tokens in this step, tokens in the cache after it) of each sequence."""
        torch.manual_seed(seed)
        needed = [-(-context // block_size) for _, context in lens]
        free = list(range(sum(needed) + 3))
        random.Random(seed).shuffle(free)
        shape = (len(free), block_size, kv_heads, head_dim)
        kv = LayerKV(
            torch.full(shape, torch.nan, dtype=dtype), torch.full(shape, torch.nan, dtype=dtype)
        )
        tables = []
        for (_, context), blocks in zip(lens, needed, strict=True):
            table = [free.pop() for _ in range(blocks)]
            slots = [table[t // block_size] * block_size + t % block_size for t in range(context)]
            keys, values = torch.randn(2, context, kv_heads, head_dim).to(dtype)
            kv_write(keys, values, kv, torch.tensor(slots))
            tables.append([*table, free[0]])  # a table may hold blocks for later tokens
        query_lens, context_lens = zip(*lens, strict=True)
        metadata = AttentionMetadata.build(query_lens, context_lens, tables, block_size, CPU)
        queries = torch.randn(sum(query_lens), kv_heads * group, head_dim).to(dtype)
        return cls(queries, kv, metadata)

    def run(self) -> torch.Tensor:
        plan = plan_attention(self.metadata, self.kv)
        return paged_attention(self.queries, self.kv, plan, scale=0.3)

    def reference(self) -> torch.Tensor:
        return paged_attention_reference(self.queries, self.kv, self.metadata, scale=0.3)


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
    st.integers(0, 1000),
)
def test_any_mix_of_prefill_chunks_and_decodes(
    lens: list[tuple[int, int]], block_size: int, heads: tuple[int, int], group: int, seed: int
) -> None:
    case = Case.build(lens, block_size=block_size, kv_heads=heads[0], group=heads[1], seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered_attention, "_CPU_GROUP_TOKENS", group)
        torch.testing.assert_close(case.run(), case.reference(), rtol=1e-5, atol=1e-5)


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    case = Case.build([(1, 30), (1, 9), (12, 12), (5, 40)], dtype=dtype)
    torch.testing.assert_close(case.run(), case.reference(), rtol=2e-2, atol=2e-2)


@pytest.mark.quick
def test_sequences_that_share_blocks() -> None:
    case = Case.build([(1, 20), (1, 20), (4, 20)])
    case.metadata = AttentionMetadata.build(
        [1, 1, 4], [20, 17, 20], [case.metadata.block_tables[0]] * 3, 8, CPU
    )
    torch.testing.assert_close(case.run(), case.reference(), rtol=1e-5, atol=1e-5)


@pytest.mark.quick
def test_queries_may_be_a_strided_view() -> None:
    case = Case.build([(1, 20), (1, 5), (4, 20)])
    expected = case.run()
    wider = torch.cat((case.queries, torch.full_like(case.queries, torch.nan)), dim=1)
    case.queries = wider[:, : case.queries.shape[1]]
    assert torch.equal(case.run(), expected)


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
