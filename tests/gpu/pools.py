"""A layer's cache in which all that no sequence wrote is NaN, and attention in float64."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.kv_layout import LayerKV
from kernels.kv_quantization import QUANTIZED, quantize


@dataclass(frozen=True)
class Step:
    """A step's sequences.

    Attributes:
        queries, contexts: tokens of each sequence.
        shared: tokens at their beginning that all have in common.
        heads, kv_heads, head_dim: of the model.
        window: the sliding window in tokens.
    """

    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    shared: int = 0
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    window: int | None = None
    block_size: int = 16


def poison(kv: LayerKV) -> None:
    """Make everything NaN; where the format has none, its scales."""
    for stored in (kv.keys, kv.values):
        stored.view(torch.uint8).fill_(0xFF)
    for scales in (kv.key_scales, kv.value_scales):
        if scales is not None:
            scales.fill_(torch.nan)


def filled(
    step: Step, dtype: torch.dtype, device: torch.device
) -> tuple[LayerKV, AttentionMetadata]:
    """A poisoned cache with the contexts of a step in blocks anywhere."""
    size = step.block_size
    prefix_blocks = step.shared // size
    own = [-(-context // size) - prefix_blocks for context in step.contexts]
    num_blocks = prefix_blocks + sum(own) + 3
    blocks = list(range(num_blocks))
    random.Random(1).shuffle(blocks)
    prefix, taken = tuple(blocks[:prefix_blocks]), prefix_blocks
    tables = []
    for count in own:
        tables.append((*prefix, *blocks[taken : taken + count]))
        taken += count
    kv = LayerKV.allocate(
        num_blocks, size, step.kv_heads, step.head_dim, dtype=dtype, device=device
    )
    poison(kv)
    for table, context in zip(tables, step.contexts, strict=True):
        _write(kv, table, context)
    metadata = AttentionMetadata.build(step.queries, step.contexts, tables, size, device)
    return kv, metadata


def _write(kv: LayerKV, table: Sequence[int], tokens: int) -> None:
    """Random keys and values of a block's own, so that shared blocks hold the same again."""
    for index, block in enumerate(table):
        count = min(kv.block_size, tokens - index * kv.block_size)
        generator = torch.Generator().manual_seed(block)
        for stored, scales in ((kv.keys, kv.key_scales), (kv.values, kv.value_scales)):
            numbers = torch.randn(count, *stored.shape[2:], generator=generator)
            if stored.dtype in QUANTIZED:
                rounded, factors = quantize(numbers, stored.dtype)
                assert scales is not None
                scales[block, :count] = factors.to(stored.device)
                bits = rounded.view(torch.uint8).to(stored.device)
                stored.view(torch.uint8)[block, :count] = bits
            else:
                stored[block, :count] = numbers.to(stored.dtype).to(stored.device)


def read_in_float64(kv: LayerKV, blocks: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of some blocks, each [tokens, num_kv_heads, head_dim], scaled.

    By their bits, as not every operation of every device knows every format.
    """
    chosen = torch.tensor(list(blocks), device=kv.keys.device)
    found = []
    for stored, scales in ((kv.keys, kv.key_scales), (kv.values, kv.value_scales)):
        numbers = stored.view(torch.uint8)[chosen].view(stored.dtype).float().double()
        if scales is not None:
            numbers = numbers * scales[chosen].double()
        found.append(numbers.flatten(0, 1))
    return found[0], found[1]


def attention_in_float64(
    queries: torch.Tensor, kv: LayerKV, metadata: AttentionMetadata, window: int | None
) -> torch.Tensor:
    """[num_tokens, num_heads, head_dim], float64; the specification, a sequence at a time."""
    output = torch.empty(queries.shape, dtype=torch.float64, device=queries.device)
    group = queries.shape[1] // kv.num_kv_heads
    for i in range(metadata.num_sequences):
        begin, end = metadata.query_starts[i : i + 2]
        context = metadata.context_lens[i]
        keys, values = (
            stored[:context].repeat_interleave(group, dim=1)
            for stored in read_in_float64(kv, metadata.block_tables[i])
        )
        scores = torch.einsum("qhd,khd->hqk", queries[begin:end].double(), keys)
        scores *= queries.shape[2] ** -0.5
        at = torch.arange(context - (end - begin), context, device=queries.device)[:, None]
        tokens = torch.arange(context, device=queries.device)
        hidden = tokens > at
        if window is not None:
            hidden |= tokens <= at - window
        weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
        output[begin:end] = torch.einsum("hqk,khd->qhd", weights, values)
    return output
