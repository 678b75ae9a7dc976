"""A step over a paged layer in which whatever must not be read is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.gpu.attention import paged_attention
from kernels.gpu.attention_limits import AttentionGeometry, DecodeLimits, TileKind
from kernels.gpu.attention_plan import HostTilePlan, Scratch, plan_attention_tiles
from kernels.kv_layout import LayerKV
from kernels.kv_write import kv_write
from kernels.packed_arrays import PackedArrays
from kernels.paged_attention import paged_attention_reference

CPU = torch.device("cpu")
ROUNDING = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class AttentionCase:
    """Queries, a layer and a step over it.

    Attributes:
        queries: rows of a wider matrix, as they are beside the keys and values of a projection.
    """

    queries: torch.Tensor
    kv: LayerKV
    metadata: AttentionMetadata

    @classmethod
    def build(
        cls,
        lens: Sequence[tuple[int, int]],
        *,
        prefixes: Sequence[Sequence[int]] = (),
        block_size: int = 16,
        kv_heads: int = 1,
        group: int = 3,
        head_dim: int = 16,
        dtype: torch.dtype = torch.float32,
        kv_dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> AttentionCase:
        """A layer of random tokens.

        Args:
            lens: of each sequence, tokens in this step and in the cache after it.
            prefixes: of each sequence, names of the blocks that its table begins with, where it has
                as many; the same name is the same block. Sequences after these share nothing.
        """
        random = np.random.default_rng(seed)
        torch.manual_seed(seed)
        needed = [-(-context // block_size) for _, context in lens]
        free = random.permutation(sum(needed) + 3).tolist()
        named: dict[int, int] = {}
        tables = []
        for i, blocks in enumerate(needed):
            names = prefixes[i][:blocks] if i < len(prefixes) else ()
            shared = [named[n] if n in named else named.setdefault(n, free.pop()) for n in names]
            tables.append(shared + [free.pop() for _ in range(blocks - len(shared))])
        kv = _storage(sum(needed) + 3, block_size, kv_heads, head_dim, kv_dtype or dtype)
        slots = sorted(
            {
                table[t // block_size] * block_size + t % block_size
                for table, (_, context) in zip(tables, lens, strict=True)
                for t in range(context)
            }
        )
        written = torch.randn(2, len(slots), kv_heads, head_dim).to(dtype)
        kv_write(written[0], written[1], kv, torch.tensor(slots, dtype=torch.int64))
        metadata = AttentionMetadata.build(
            [count if context else 0 for count, context in lens],
            [context for _, context in lens],
            [[*table, free[0]] for table in tables],  # a table may hold blocks for later tokens
            block_size,
            CPU,
        )
        # Padding: a query of a sequence that has no tokens.
        starts = tuple(accumulate((count for count, _ in lens), initial=0))
        metadata = replace(metadata, query_starts=starts)
        wide = torch.full((metadata.num_tokens, (group + 2) * kv_heads, head_dim), torch.nan)
        wide[:, : group * kv_heads] = torch.randn(metadata.num_tokens, group * kv_heads, head_dim)
        return cls(wide.to(dtype)[:, : group * kv_heads], kv, metadata)

    def geometry(self, multiprocessors: int = 132) -> AttentionGeometry:
        """With tiles of as many rows as bfloat16 has, for float32 shows more of what is wrong."""
        of_layer = AttentionGeometry.of(self.kv, self.queries.shape[1])
        return replace(of_layer, multiprocessors=multiprocessors, kv_bytes=2)

    def plan(
        self,
        window: int | None = None,
        *,
        batch_invariant: bool = False,
        limits: DecodeLimits | None = None,
        multiprocessors: int = 132,
    ) -> HostTilePlan:
        return plan_attention_tiles(
            self.metadata,
            self.geometry(multiprocessors),
            window,
            batch_invariant=batch_invariant,
            limits=limits,
        )

    def arguments(
        self,
        plan: HostTilePlan,
        softcap: float | None = None,
        kind: TileKind | None = None,
        into: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Of the operation; scratch and what lies behind the plan's numbers is poisoned."""
        packed = PackedArrays()
        for array, capacity in zip(plan.arrays, plan.capacities, strict=True):
            packed.add(array, capacity)
        if into is None:
            into = torch.full((packed.num_bytes,), 0x7F, dtype=torch.uint8)
        scratch = Scratch.allocate(plan.num_slots, plan.geometry, CPU)
        scratch.partial.fill_(torch.nan)
        scratch.lse.fill_(torch.nan)
        tiles = plan.on_device(packed.upload("cpu", into), scratch, kind)
        storage = self.kv.keys, self.kv.values, self.kv.key_scales, self.kv.value_scales
        return (
            self.queries, *storage, *tiles.arguments, self.scale, softcap, *tiles.launch
        )  # fmt: skip

    def run(self, *arguments: Any, **named: Any) -> torch.Tensor:
        """The kernel's answers; see `arguments`."""
        found: torch.Tensor = paged_attention(*self.arguments(*arguments, **named))
        return found

    @property
    def scale(self) -> float:
        return self.queries.shape[2] ** -0.5

    def check(
        self, found: torch.Tensor, window: int | None = None, softcap: float | None = None
    ) -> None:
        """Compare with the reference, all rows that are not padding."""
        expected = paged_attention_reference(
            self.queries, self.kv, self.metadata, self.scale, window, softcap
        )
        rows, bound = self.real_rows(), ROUNDING[self.queries.dtype]
        if self.kv.key_scales is not None:  # float16 would not hold the scales of all values
            bound = max(bound, ROUNDING[torch.bfloat16] * (bound > 1e-3))
        torch.testing.assert_close(found[rows], expected[rows], rtol=bound, atol=bound)
        assert found.dtype is self.queries.dtype

    def real_rows(self) -> list[int]:
        """Rows of sequences that have tokens."""
        starts = self.metadata.query_starts
        return [
            row
            for i, context in enumerate(self.metadata.context_lens)
            if context
            for row in range(starts[i], starts[i + 1])
        ]

    def alone(self, i: int, queries: int) -> AttentionCase:
        """Only the last `queries` of sequence `i`; the same layer."""
        end = self.metadata.query_starts[i + 1]
        metadata = AttentionMetadata.build(
            [queries],
            [self.metadata.context_lens[i]],
            [self.metadata.block_tables[i]],
            self.kv.block_size,
            CPU,
        )
        return replace(self, queries=self.queries[end - queries : end], metadata=metadata)


def _storage(
    num_blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> LayerKV:
    """All NaN, or the largest number with a scale that is NaN."""
    kv = LayerKV.allocate(num_blocks, block_size, kv_heads, head_dim, dtype=dtype)
    for stored in (kv.keys, kv.values):
        stored.view(torch.uint8).fill_(0x7F if dtype is torch.int8 else 0xFF)
    for scales in (kv.key_scales, kv.value_scales):
        if scales is not None:
            scales.fill_(torch.nan)
    return kv
