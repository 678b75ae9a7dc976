"""Paged attention in plain torch: gather the blocks, then scaled dot-product attention.

Sequences with one query each (decodes) are gathered a few at a time, so that their keys and
values still lie in the processor's cache when attention reads them; each longer query is
computed alone. Nothing here asks the device for a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from kernels.attention_metadata import AttentionMetadata
from kernels.kv_layout import LayerKV

# Measured with 64 sequences of 550 tokens and 3 heads of 64 numbers: 5.4 ms a layer in groups
# of 4 or 8 sequences, 9 ms one by one, 10 ms all at once (and 16 ms where each gather
# allocates its own memory). On a GPU few large operations are better than many small ones.
_CPU_GROUP_TOKENS = 4096
_GPU_GROUP_TOKENS = 131_072


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences with one query each, padded to the longest.

    Attributes:
        rows: [n], int64, the queries' rows among the step's tokens.
        blocks: [n * blocks_per_sequence], int64, padded with block 0.
        padding: [p], int64, gathered tokens that belong to no sequence.
        bias: [n, 1, 1, gathered tokens of a sequence], 0 or -inf, of the dtype of queries.
    """

    rows: torch.Tensor
    blocks: torch.Tensor
    padding: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True)
class PrefillQuery:
    """One sequence with several queries.

    Attributes:
        start, end: the queries' rows among the step's tokens.
        context_len: tokens to attend to, the queries' own included.
        blocks: [blocks], int64.
        bias: [queries, context_len], 0 or -inf; None where the queries are the whole
            context, whose causal mask needs no storage.
    """

    start: int
    end: int
    context_len: int
    blocks: torch.Tensor
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """What all layers of a step share.

    Attributes:
        slots: [num_tokens], int64, where this step's keys and values are written.
        workspace: [2, blocks, block_size, num_kv_heads, head_dim], where keys and values
            are gathered; used again by each group and layer.
    """

    slots: torch.Tensor
    decode_groups: tuple[DecodeGroup, ...]
    prefills: tuple[PrefillQuery, ...]
    workspace: torch.Tensor

    @classmethod
    def build(cls, metadata: AttentionMetadata, kv: LayerKV) -> GatherPlan:
        device, dtype = kv.keys.device, kv.keys.dtype
        decodes: list[int] = []
        longer: list[int] = []
        for i in range(metadata.num_sequences):
            (decodes if metadata.query_len(i) == 1 else longer).append(i)
        groups = tuple(
            _decode_group(members, metadata, kv.block_size, device, dtype)
            for members in _group_by_length(decodes, metadata, device)
        )
        prefills = tuple(_prefill(i, metadata, kv.block_size, device, dtype) for i in longer)
        most_blocks = max(
            p.shape[0] for p in [*(g.blocks for g in groups), *(q.blocks for q in prefills)]
        )
        workspace = torch.empty((2, most_blocks, *kv.keys.shape[1:]), dtype=dtype, device=device)
        return cls(metadata.slots, groups, prefills, workspace)


def gathered_attention(
    queries: torch.Tensor, kv: LayerKV, plan: GatherPlan, scale: float
) -> torch.Tensor:
    """See `kernels.paged_attention.paged_attention`."""
    num_heads, head_dim = queries.shape[1:]
    kv_heads, group = kv.num_kv_heads, num_heads // kv.num_kv_heads
    output = torch.empty_like(queries, memory_format=torch.contiguous_format)
    for decodes in plan.decode_groups:
        n = decodes.rows.shape[0]
        keys, values = _gather(kv, decodes.blocks, plan.workspace)
        # Padding is arbitrary bits, and NaN times a weight of 0 is still NaN.
        keys.index_fill_(0, decodes.padding, 0)
        values.index_fill_(0, decodes.padding, 0)
        # Query heads of one key-value head become rows of one product: nothing is repeated.
        attended = functional.scaled_dot_product_attention(
            queries.index_select(0, decodes.rows).view(n, kv_heads, group, head_dim),
            keys.view(n, -1, kv_heads, head_dim).transpose(1, 2),
            values.view(n, -1, kv_heads, head_dim).transpose(1, 2),
            attn_mask=decodes.bias,
            scale=scale,
        )
        output.index_copy_(0, decodes.rows, attended.reshape(n, num_heads, head_dim))
    for prefill in plan.prefills:
        keys, values = _gather(kv, prefill.blocks, plan.workspace)
        # [group, kv heads, tokens, head_dim]: keys are shared along the first axis.
        shape = (-1, kv_heads, group, head_dim)
        attended = functional.scaled_dot_product_attention(
            queries[prefill.start : prefill.end].view(shape).permute(2, 1, 0, 3),
            keys[: prefill.context_len].transpose(0, 1).expand(group, -1, -1, -1),
            values[: prefill.context_len].transpose(0, 1).expand(group, -1, -1, -1),
            attn_mask=prefill.bias,
            is_causal=prefill.bias is None,
            scale=scale,
        )
        output[prefill.start : prefill.end].view(shape).copy_(attended.permute(2, 1, 0, 3))
    return output


def _gather(
    kv: LayerKV, blocks: torch.Tensor, workspace: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of `blocks`, each [tokens, num_kv_heads, head_dim]."""
    keys, values = workspace[:, : blocks.shape[0]]
    torch.index_select(kv.keys, 0, blocks, out=keys)
    torch.index_select(kv.values, 0, blocks, out=values)
    return keys.flatten(0, 1), values.flatten(0, 1)


def _group_by_length(
    sequences: list[int], metadata: AttentionMetadata, device: torch.device
) -> Iterator[list[int]]:
    """Sequences of similar length together: little padding, few tokens a group."""
    limit = _CPU_GROUP_TOKENS if device.type == "cpu" else _GPU_GROUP_TOKENS
    group: list[int] = []
    for i in sorted(sequences, key=lambda i: metadata.context_lens[i]):
        if group and (len(group) + 1) * metadata.context_lens[i] > limit:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _decode_group(
    members: list[int],
    metadata: AttentionMetadata,
    block_size: int,
    device: torch.device,
    dtype: torch.dtype,
) -> DecodeGroup:
    width = -(-metadata.context_lens[members[-1]] // block_size)
    blocks: list[int] = []
    for i in members:
        used = metadata.block_tables[i][: -(-metadata.context_lens[i] // block_size)]
        blocks.extend((*used, *(0,) * (width - len(used))))
    lengths = torch.tensor([metadata.context_lens[i] for i in members])
    outside = torch.arange(width * block_size) >= lengths[:, None]
    bias = torch.zeros(outside.shape, dtype=dtype).masked_fill_(outside, -torch.inf)
    rows = torch.tensor([metadata.query_starts[i] for i in members])
    return DecodeGroup(
        rows=rows.to(device, non_blocking=True),
        blocks=torch.tensor(blocks).to(device, non_blocking=True),
        padding=outside.flatten().nonzero().squeeze(-1).to(device, non_blocking=True),
        bias=bias[:, None, None].to(device, non_blocking=True),
    )


def _prefill(
    i: int,
    metadata: AttentionMetadata,
    block_size: int,
    device: torch.device,
    dtype: torch.dtype,
) -> PrefillQuery:
    context_len, query_len = metadata.context_lens[i], metadata.query_len(i)
    bias = None
    if query_len < context_len:
        bias = torch.full((query_len, context_len), -torch.inf, dtype=dtype, device=device)
        bias.triu_(context_len - query_len + 1)
    used = metadata.block_tables[i][: -(-context_len // block_size)]
    return PrefillQuery(
        start=metadata.query_starts[i],
        end=metadata.query_starts[i + 1],
        context_len=context_len,
        blocks=torch.tensor(used).to(device, non_blocking=True),
        bias=bias,
    )
