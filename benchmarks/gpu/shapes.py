"""Shapes of the models that are measured, and a layer's KV cache with contexts in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.gpu.device import Device
from benchmarks.gpu.items import NotHere
from kernels.attention_metadata import AttentionMetadata
from kernels.kv_layout import LayerKV
from kernels.kv_quantization import QUANTIZED

BLOCK_SIZE = 16


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    inner: int
    vocab: int
    layers: int
    qk_norm: bool = False


LLAMA = Shape("Llama-3-8B", 32, 8, 128, 4096, 14336, 128256, 32)
QWEN = Shape("Qwen3-0.6B", 16, 8, 128, 1024, 3072, 151936, 28, qk_norm=True)
_TINY_LLAMA = Shape("Llama-3-8B", 4, 2, 16, 64, 96, 288, 2)
_TINY_QWEN = Shape("Qwen3-0.6B", 4, 2, 16, 32, 64, 320, 2, qk_norm=True)


def shapes(dry: bool) -> tuple[Shape, ...]:
    """Those of Llama-3-8B and Qwen3-0.6B."""
    return (_TINY_LLAMA, _TINY_QWEN) if dry else (LLAMA, QWEN)


def numbers(device: Device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Normal random numbers, without the device's own generator: failed captures break that."""
    generator = torch.Generator(device.torch_device).manual_seed(0)
    found = torch.empty(shape, dtype=dtype, device=device.torch_device)
    return found.normal_(generator=generator)


def layer(device: Device, shape: Shape, tokens: int, dtype: torch.dtype) -> LayerKV:
    """A layer's storage for so many tokens, filled.

    Raises:
        NotHere: there is not the memory for it.
    """
    num_blocks = -(-tokens // BLOCK_SIZE)
    needed = 2 * num_blocks * BLOCK_SIZE * shape.kv_heads * (shape.head_dim * dtype.itemsize + 4)
    free = device.free_bytes()
    if needed > 0.8 * free:
        raise NotHere(f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} are free")
    kv = LayerKV.allocate(
        num_blocks, BLOCK_SIZE, shape.kv_heads, shape.head_dim, dtype=dtype,
        device=device.torch_device,
    )  # fmt: skip
    generator = torch.Generator(device.torch_device).manual_seed(1)
    for stored in (kv.keys, kv.values):
        if dtype in QUANTIZED:
            # Any bits, but for the second highest: no exponent is the one of NaN and infinity.
            bits = stored.view(torch.uint8)
            bits.random_(0, 256, generator=generator).bitwise_and_(0xBF)
        else:
            stored.normal_(generator=generator)
    for scales in (kv.key_scales, kv.value_scales):
        if scales is not None:
            scales.fill_(0.01 if dtype is torch.int8 else 0.5)
    return kv


def kv_bytes(kv: LayerKV, tokens: int) -> int:
    """Bytes of keys, values and scales of so many tokens."""
    groups = 0 if kv.key_scales is None else kv.key_scales.shape[-1]
    width = kv.keys.shape[-1] * kv.keys.dtype.itemsize
    return 2 * tokens * kv.num_kv_heads * (width + 4 * groups)


def contexts(
    kv: LayerKV, query_lens: Sequence[int], context_lens: Sequence[int], shared: int = 0
) -> AttentionMetadata:
    """Sequences whose blocks lie anywhere in the cache.

    Args:
        shared: tokens at their beginning, whole blocks, that all have in common.
    """
    blocks = list(range(kv.num_blocks))
    random.Random(0).shuffle(blocks)
    prefix = tuple(blocks[: shared // kv.block_size])
    taken = len(prefix)
    tables = []
    for context in context_lens:
        own = -(-context // kv.block_size) - len(prefix)
        tables.append((*prefix, *blocks[taken : taken + own]))
        taken += own
    assert taken <= kv.num_blocks
    return AttentionMetadata.build(query_lens, context_lens, tables, kv.block_size, kv.keys.device)
