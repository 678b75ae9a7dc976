"""Paged attention in plain torch: gather the blocks, then scaled dot-product attention.

Sequences with one query each (decodes) are gathered a few at a time, so that their keys and
values still lie in the processor's cache when attention reads them; each longer query is
computed alone. Only blocks that a query attends to are gathered: with a sliding window, those
from the first one that the window touches. Nothing here asks the device for a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from kernels.attention_metadata import AttentionMetadata
from kernels.host_tensors import to_device
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
        padding: [p], int64, gathered tokens that belong to no sequence or lie before its window.
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
        blocks: [blocks], int64.
        first, last: the gathered tokens that some query attends to, the queries' own included.
        bias: [queries, last - first], 0 or -inf; None where the queries are the whole
            context, whose causal mask needs no storage.
    """

    start: int
    end: int
    blocks: torch.Tensor
    first: int
    last: int
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How a step's attention is computed in every layer that has the same window."""

    decode_groups: tuple[DecodeGroup, ...]
    prefills: tuple[PrefillQuery, ...]

    @classmethod
    def build(cls, metadata: AttentionMetadata, kv: LayerKV, window: int | None) -> GatherPlan:
        decodes: list[int] = []
        longer: list[int] = []
        for i in range(metadata.num_sequences):
            (decodes if metadata.query_len(i) == 1 else longer).append(i)
        return cls(
            decode_groups=tuple(
                _decode_group(members, metadata, kv, window)
                for members in _group_by_length(decodes, metadata, kv, window)
            ),
            prefills=tuple(_prefill(i, metadata, kv, window) for i in longer),
        )

    @property
    def most_blocks(self) -> int:
        """Blocks of the largest gather."""
        gathers = [g.blocks for g in self.decode_groups] + [p.blocks for p in self.prefills]
        return max(blocks.shape[0] for blocks in gathers)


def gathered_attention(
    queries: torch.Tensor,
    kv: LayerKV,
    plan: GatherPlan,
    workspace: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """See `kernels.paged_attention.paged_attention`.

    Args:
        workspace: [2, `plan.most_blocks` or more, *one block's shape]; overwritten.
    """
    num_heads, head_dim = queries.shape[1:]
    kv_heads, group = kv.num_kv_heads, num_heads // kv.num_kv_heads
    output = torch.empty_like(queries, memory_format=torch.contiguous_format)
    for decodes in plan.decode_groups:
        n = decodes.rows.shape[0]
        keys, values = _gather(kv, decodes.blocks, workspace)
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
        keys, values = _gather(kv, prefill.blocks, workspace)
        # [group, kv heads, tokens, head_dim]: keys are shared along the first axis.
        shape = (-1, kv_heads, group, head_dim)
        attended = functional.scaled_dot_product_attention(
            queries[prefill.start : prefill.end].view(shape).permute(2, 1, 0, 3),
            keys[prefill.first : prefill.last].transpose(0, 1).expand(group, -1, -1, -1),
            values[prefill.first : prefill.last].transpose(0, 1).expand(group, -1, -1, -1),
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


def _attended_blocks(
    i: int, metadata: AttentionMetadata, block_size: int, window: int | None
) -> range:
    """Logical blocks of sequence `i` that hold a token to attend to."""
    first = metadata.first_attended(i, window) // block_size
    return range(first, -(-metadata.context_lens[i] // block_size))


def _group_by_length(
    sequences: list[int], metadata: AttentionMetadata, kv: LayerKV, window: int | None
) -> Iterator[list[int]]:
    """Sequences of similar length together: little padding, few tokens a group."""
    limit = _CPU_GROUP_TOKENS if kv.keys.device.type == "cpu" else _GPU_GROUP_TOKENS
    gathered = {
        i: metadata.context_lens[i]
        - _attended_blocks(i, metadata, kv.block_size, window).start * kv.block_size
        for i in sequences
    }
    group: list[int] = []
    for i in sorted(sequences, key=gathered.__getitem__):
        if group and (len(group) + 1) * gathered[i] > limit:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _decode_group(
    members: list[int], metadata: AttentionMetadata, kv: LayerKV, window: int | None
) -> DecodeGroup:
    device, block_size = kv.keys.device, kv.block_size
    attended = [_attended_blocks(i, metadata, block_size, window) for i in members]
    width = max(map(len, attended))
    blocks: list[int] = []
    for i, used in zip(members, attended, strict=True):
        blocks.extend(metadata.block_tables[i][used.start : used.stop])
        blocks.extend((0,) * (width - len(used)))
    # Counted from the first gathered token of each sequence.
    begins = torch.tensor([used.start * block_size for used in attended])
    tokens = torch.arange(width * block_size)
    outside = (
        tokens >= (torch.tensor([metadata.context_lens[i] for i in members]) - begins)[:, None]
    )
    if window is not None:
        first = torch.tensor([metadata.first_attended(i, window) for i in members])
        outside |= tokens < (first - begins)[:, None]
    bias = torch.zeros(outside.shape, dtype=kv.keys.dtype).masked_fill_(outside, -torch.inf)
    rows = torch.tensor([metadata.query_starts[i] for i in members])
    return DecodeGroup(
        rows=to_device(rows, device),
        blocks=to_device(torch.tensor(blocks), device),
        padding=to_device(outside.flatten().nonzero().squeeze(-1), device),
        bias=to_device(bias[:, None, None], device),
    )


def _prefill(i: int, metadata: AttentionMetadata, kv: LayerKV, window: int | None) -> PrefillQuery:
    device, block_size = kv.keys.device, kv.block_size
    first = metadata.first_attended(i, window)
    used = _attended_blocks(i, metadata, block_size, window)
    begin = used.start * block_size
    blocks = metadata.block_tables[i][used.start : used.stop]
    return PrefillQuery(
        start=metadata.query_starts[i],
        end=metadata.query_starts[i + 1],
        blocks=to_device(torch.tensor(blocks), device),
        first=first - begin,
        last=metadata.context_lens[i] - begin,
        bias=_bias(metadata.query_len(i), metadata.context_lens[i] - first, window, kv),
    )


def _bias(queries: int, tokens: int, window: int | None, kv: LayerKV) -> torch.Tensor | None:
    """The mask of the last `queries` of `tokens` tokens; None where `is_causal` says it all."""
    if window is not None and window >= tokens:
        window = None
    if window is None and queries == tokens:
        return None
    shape, first_query = (queries, tokens), tokens - queries
    blocked = torch.full(shape, -torch.inf, dtype=kv.keys.dtype, device=kv.keys.device)
    if window is None:
        return blocked.triu_(first_query + 1)
    return blocked.triu(first_query + 1).add_(blocked.tril_(first_query - window))
