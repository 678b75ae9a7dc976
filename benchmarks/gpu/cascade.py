"""What it gains that decodes attend to a shared prefix together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from benchmarks.gpu.ceilings import shown
from benchmarks.gpu.device import Device, Times
from benchmarks.gpu.items import Item, NotHere, Surroundings
from benchmarks.gpu.shapes import LLAMA, Shape, contexts, kv_bytes, layer, numbers, shapes
from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import plan_attention
from kernels.gpu import attention_items
from kernels.kv_layout import LayerKV
from kernels.paged_attention import paged_attention

SEQUENCES, PREFIXES, OWN_TOKENS = (1, 64, 256, 1024), (512, 2048, 16384), 32
TARGET = (64, 2048)


def cascade_name(sequences: int, prefix: int, shape: Shape = LLAMA) -> str:
    return f"cascade of {sequences} after {prefix}, {shape.name}"


def targets(dry: bool) -> Iterator[Item]:
    yield _item(*TARGET, shapes(dry)[0], "targets", dry)


def items(dry: bool) -> Iterator[Item]:
    first = {item.name for item in targets(dry)}
    for shape in shapes(dry):
        for sequences in SEQUENCES[1:2] if dry else SEQUENCES:
            for prefix in PREFIXES[1:2] if dry else PREFIXES:
                item = _item(sequences, prefix, shape, "cascade", dry)
                if item.name not in first:
                    yield item


def _item(sequences: int, prefix: int, shape: Shape, group: str, dry: bool) -> Item:
    size = (17, 128) if dry else (sequences, prefix)
    return Item(cascade_name(sequences, prefix, shape), group, partial(_measure, shape, *size))


def _measure(shape: Shape, sequences: int, prefix: int, given: Surroundings) -> dict[str, Any]:
    """Times of a layer's attention: together; apart, on the same blocks, many of which the L2
    cache then holds; and apart where each sequence has a prefix of its own in memory."""
    device = given.device
    context = prefix + OWN_TOKENS
    lens = [1] * sequences, [context] * sequences
    kv = layer(device, shape, prefix + sequences * OWN_TOKENS, torch.bfloat16)
    metadata = contexts(kv, *lens, shared=prefix)
    read = kv_bytes(kv, prefix + sequences * OWN_TOKENS)
    together = _time(device, shape, kv, metadata, read)
    with apart():
        same_blocks = _time(device, shape, kv, metadata, read)
    found = {
        **together.figures(),
        "apart_us": shown(same_blocks.median * 1e6),
        "gain": shown(same_blocks.median / together.median),
    }
    del kv
    if device.dry:
        return found
    try:
        kv = layer(device, shape, sequences * context, torch.bfloat16)
    except NotHere as reason:
        return {**found, "apart_own_blocks": str(reason)}
    own = _time(device, shape, kv, contexts(kv, *lens), kv_bytes(kv, sequences * context))
    return {
        **found,
        "apart_own_blocks_us": shown(own.median * 1e6),
        "gain_over_own_blocks": shown(own.median / together.median),
    }


def _time(
    device: Device, shape: Shape, kv: LayerKV, metadata: AttentionMetadata, nbytes: int
) -> Times:
    queries = numbers(device, metadata.num_tokens, shape.heads, shape.head_dim)
    plan = plan_attention(metadata, kv, shape.heads, (None,))
    return device.times(
        lambda: paged_attention(queries, kv, plan, shape.head_dim**-0.5), nbytes=nbytes
    )


@contextmanager
def apart() -> Iterator[None]:
    """No decodes attend together."""
    with mock.patch.object(attention_items, "MIN_SHARED_TOKENS", 1 << 40):
        yield
