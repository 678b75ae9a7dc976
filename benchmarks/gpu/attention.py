"""Attention of decodes and of prompts, as shares of the bandwidth and of the matrix rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.ceilings import by_bandwidth, by_rate
from benchmarks.gpu.items import Item, Surroundings
from benchmarks.gpu.shapes import Shape, contexts, kv_bytes, layer, numbers, shapes
from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import plan_attention
from kernels.paged_attention import paged_attention

FORMATS = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}
BATCHES, CONTEXTS = (1, 8, 64, 256), (512, 2048, 8192, 16384)
# Of these there is a target: from 64 sequences of 2,048 tokens on.
DECODE_TARGETS = ((64, 2048), (64, 8192), (256, 2048), (256, 8192))
# Queries and contexts of each sequence of a step.
PREFILLS: dict[str, list[tuple[int, int]]] = {
    "1 x 8192": [(8192, 8192)],
    "8 x 1024": [(1024, 1024)] * 8,
    "2048 after 6144 cached": [(2048, 8192)],
    "4096 beside 64 decodes of 2048": [(1, 2048)] * 64 + [(4096, 4096)],
}
PREFILL_TARGETS = ("1 x 8192", "8 x 1024")


def decode_name(format_name: str, batch: int, context: int, shape: Shape) -> str:
    return f"decode {format_name}, {batch} x {context}, {shape.name}"


def prefill_name(kind: str, shape: Shape) -> str:
    return f"prefill {kind}, {shape.name}"


def targets(dry: bool) -> Iterator[Item]:
    """What there are targets for."""
    for shape in shapes(dry):
        for batch, context in DECODE_TARGETS[: 1 if dry else None]:
            yield _decode_item("bf16", batch, context, shape, "targets", dry)
    for shape in shapes(dry):
        for kind in PREFILL_TARGETS:
            yield _prefill_item(kind, shape, "targets", dry)


def items(dry: bool) -> Iterator[Item]:
    """The others."""
    first = {item.name for item in targets(dry)}
    for shape in shapes(dry):
        for name in FORMATS:
            for batch in BATCHES[2:3] if dry else BATCHES:
                for context in CONTEXTS[1:2] if dry else CONTEXTS:
                    item = _decode_item(name, batch, context, shape, "attention", dry)
                    if item.name not in first:
                        yield item
    for shape in shapes(dry):
        for kind in PREFILLS:
            item = _prefill_item(kind, shape, "attention", dry)
            if item.name not in first:
                yield item


def _decode_item(
    format_name: str, batch: int, context: int, shape: Shape, group: str, dry: bool
) -> Item:
    name = decode_name(format_name, batch, context, shape)
    size = (min(batch, 2), 20) if dry else (batch, context)
    return Item(name, group, partial(_decode, shape, FORMATS[format_name], *size))


def _prefill_item(kind: str, shape: Shape, group: str, dry: bool) -> Item:
    steps = PREFILLS[kind]
    if dry:
        steps = [(min(queries, 9), 20 if context > queries else 9) for queries, context in steps]
        steps = steps[-3:]
    return Item(prefill_name(kind, shape), group, partial(_prefill, shape, tuple(steps)))


def _decode(
    shape: Shape, dtype: torch.dtype, batch: int, context: int, given: Surroundings
) -> dict[str, Any]:
    tokens = batch * context
    kv = layer(given.device, shape, batch * -(-context // 16) * 16, dtype)
    metadata = contexts(kv, [1] * batch, [context] * batch)
    queries = numbers(given.device, batch, shape.heads, shape.head_dim)
    plan = plan_attention(metadata, kv, shape.heads, (None,))
    nbytes = kv_bytes(kv, tokens) + 2 * queries.nbytes
    times = given.device.times(
        lambda: paged_attention(queries, kv, plan, shape.head_dim**-0.5), nbytes=nbytes
    )
    return by_bandwidth(times, nbytes, given.known)


def _prefill(shape: Shape, steps: Sequence[tuple[int, int]], given: Surroundings) -> dict[str, Any]:
    query_lens, context_lens = zip(*steps, strict=True)
    blocks = sum(-(-context // 16) for context in context_lens)
    kv = layer(given.device, shape, blocks * 16, torch.bfloat16)
    metadata = contexts(kv, query_lens, context_lens)
    queries = numbers(given.device, metadata.num_tokens, shape.heads, shape.head_dim)
    plan = plan_attention(metadata, kv, shape.heads, (None,))
    # Not cold: what arithmetic bounds is computed right after what wrote it.
    times = given.device.times(
        lambda: paged_attention(queries, kv, plan, shape.head_dim**-0.5),
        nbytes=kv_bytes(kv, sum(context_lens)),
        cold=False,
    )
    return by_rate(times, attention_flops(metadata, shape), given.known)


def attention_flops(metadata: AttentionMetadata, shape: Shape) -> int:
    """Of both products, for the tokens that each query attends to and no others."""
    attended = 0
    for i in range(metadata.num_sequences):
        queries, context = metadata.query_len(i), metadata.context_lens[i]
        attended += queries * (context - queries) + queries * (queries + 1) // 2
    return 4 * shape.heads * shape.head_dim * attended
