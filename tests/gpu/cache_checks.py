"""Writing to the cache, copying blocks within it, and swapping them to the host and back."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.gpu.items import Item, Surroundings
from engine.blocks import BlockCopy
from engine.kv_cache import KVCache
from engine.kv_format import KVFormat
from engine.swap_pool import SwapPool
from kernels.block_copy import copy_blocks
from kernels.gpu.library import find
from kernels.kv_layout import KVStorage, LayerKV
from kernels.kv_quantization import QUANTIZED
from kernels.rope import rope_cos_sin
from kernels.rope_kv_write import HeadNormWeights, rope_kv_write
from tests.gpu.near import near
from tests.gpu.pools import poison, read_in_float64

GROUP = "cache"
_FORMATS: dict[str, tuple[torch.dtype, torch.dtype]] = {
    "float32": (torch.float32, torch.float32),
    "float16": (torch.float16, torch.float16),
    "bf16": (torch.bfloat16, torch.bfloat16),
    "bf16 to int8": (torch.bfloat16, torch.int8),
    "bf16 to e4m3": (torch.bfloat16, torch.float8_e4m3fn),
    "bf16 to e5m2": (torch.bfloat16, torch.float8_e5m2),
    "float32 to int8": (torch.float32, torch.int8),
}
# Heads, key-value heads, their width, and whether heads are normalized.
_MODELS = {
    "Llama-3-8B": (32, 8, 128, False), "Qwen3-0.6B": (16, 8, 128, True),
    "SmolLM2": (9, 3, 64, False), "width 80": (4, 2, 80, True),
}  # fmt: skip
# What 8 bits lose, as a share of the largest number of all heads.
_LOST = {torch.int8: 0.006, torch.float8_e4m3fn: 0.04, torch.float8_e5m2: 0.08}


def items(dry: bool) -> list[Item]:
    models = {"tiny": (4, 2, 16, True)} if dry else _MODELS
    found = []
    for name, formats in _FORMATS.items():
        for model, sizes in models.items():
            for tokens in (3,) if dry else (1, 5, 600):
                run = partial(_write, sizes, tokens, *formats)
                found.append(Item(f"rope_kv_write {name}, {tokens} tokens, {model}", GROUP, run))
        for blocks in (4,) if dry else (1, 300):
            found.append(
                Item(f"copy of {blocks} blocks {name}", GROUP, partial(_copy, formats[1], blocks))
            )
            found.append(
                Item(f"swap of {blocks} blocks {name}", GROUP, partial(_swap, formats[1], blocks))
            )
    unique = {item.name: item for item in found}
    return list(unique.values())


def _allocated(
    given: Surroundings, blocks: int, kv_heads: int, width: int, dtype: torch.dtype
) -> LayerKV:
    return LayerKV.allocate(
        blocks, 16, kv_heads, width, dtype=dtype, device=given.device.torch_device
    )


def _write(
    sizes: tuple[int, int, int, bool],
    tokens: int,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    given: Surroundings,
) -> dict[str, Any]:
    heads, kv_heads, width, normalizes = sizes
    device = given.device.torch_device
    generator = torch.Generator().manual_seed(tokens)
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * width, generator=generator)
    qkv = qkv.to(dtype).to(device)
    weights = (1 + 0.3 * torch.randn(2, width, generator=generator)).to(dtype).to(device)
    norms = HeadNormWeights(weights[0], weights[1], 1e-6) if normalizes else None
    frequencies = (10_000.0 ** -(torch.arange(width // 2) / (width // 2))).to(device)
    positions = torch.randint(0, 9000, (tokens,), generator=generator).to(device)
    cos_sin = rope_cos_sin(positions, frequencies, dtype)
    kv = _allocated(given, tokens + 4, kv_heads, width, kv_dtype)
    poison(kv)
    slots = torch.randperm((tokens + 4) * 16, generator=generator)[:tokens].to(device)

    queries = rope_kv_write(qkv, cos_sin, norms, kv, slots)

    right = _rotated(qkv, cos_sin, norms, heads, kv_heads, width)
    figures = near(queries, right[0])
    lost = _LOST.get(kv_dtype)
    written = read_in_float64(kv, range(kv.num_blocks))
    for stored, expected in zip(written, right[1:], strict=True):
        near(stored[slots].to(dtype), expected, lost)
    _check_untouched(kv, slots)
    if find("rope_kv_write", device) is not None:
        kept = [stored.view(torch.uint8).clone() for stored in (kv.keys, kv.values)]
        rope_kv_write(qkv, cos_sin, norms, kv, torch.full_like(slots, -1))
        for stored, before in zip((kv.keys, kv.values), kept, strict=True):
            assert torch.equal(stored.view(torch.uint8), before), "padding was written"
    return figures


def _rotated(
    qkv: torch.Tensor,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    norms: HeadNormWeights | None,
    heads: int,
    kv_heads: int,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values in float64."""
    parts = qkv.double().view(len(qkv), -1, width).split([heads, kv_heads, kv_heads], dim=1)
    cos, sin = (angle.double() for angle in cos_sin)

    def turned(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if norms is not None and weight is not None:
            x = x * (x.square().mean(-1, keepdim=True) + norms.eps).rsqrt() * weight.double()
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return (
        turned(parts[0], norms.queries if norms else None),
        turned(parts[1], norms.keys if norms else None),
        parts[2],
    )


def _check_untouched(kv: LayerKV, slots: torch.Tensor) -> None:
    others = torch.ones(kv.num_blocks * kv.block_size, dtype=torch.bool, device=slots.device)
    others[slots] = False
    for stored in (kv.keys, kv.values):
        bits = stored.view(torch.uint8).flatten(0, 1)[others]
        assert bool((bits == 0xFF).all()), "other slots were written"


def _storage(given: Surroundings, blocks: int, dtype: torch.dtype) -> KVStorage:
    """Of three layers, with any bits, NaN among them."""
    storage = KVStorage.allocate(
        3, blocks, 16, 2, 64, dtype=dtype, device=given.device.torch_device
    )
    generator = torch.Generator().manual_seed(4)
    for stored in (storage.numbers, storage.scales):
        if stored is not None:
            bits = stored.view(torch.uint8)
            bits.copy_(torch.randint(0, 256, bits.shape, dtype=torch.uint8, generator=generator))
    return storage


def _bits(storage: KVStorage) -> torch.Tensor:
    """All that is stored, a row for each block."""
    return torch.cat([part.clone() for part in storage.parts()], dim=1)


def _copy(dtype: torch.dtype, blocks: int, given: Surroundings) -> dict[str, Any]:
    """Once sources and targets overlap, and once they do not."""
    device = given.device.torch_device
    order = torch.randperm(2 * blocks + 1, generator=torch.Generator().manual_seed(5)).to(device)
    sources = order[:blocks]
    for targets, apart in (
        (order[blocks // 2 : blocks // 2 + blocks], False),
        (order[blocks : 2 * blocks], True),
    ):
        storage = _storage(given, 2 * blocks + 1, dtype)
        right = _bits(storage)
        right[targets] = right[sources]
        copy_blocks(storage, sources, targets, apart=apart)
        assert torch.equal(_bits(storage), right), "blocks are not what they should be"
    return {"scales": dtype in QUANTIZED}


def _swap(dtype: torch.dtype, blocks: int, given: Surroundings) -> dict[str, Any]:
    """Out, the blocks overwritten, and in again."""
    storage = _storage(given, blocks + 3, dtype)
    cache = KVCache(blocks + 3, 16, KVFormat(dtype), storage)
    before = _bits(storage)
    pool = SwapPool(cache, blocks)
    order = torch.randperm(blocks + 3, generator=torch.Generator().manual_seed(6)).tolist()[:blocks]
    # One after the other, without waiting: the order of the device's work must suffice.
    pool.swap_out([BlockCopy(block, host) for host, block in enumerate(order)])
    for kv in storage.layers:
        poison(kv)
    pool.swap_in([BlockCopy(host, block) for host, block in enumerate(order)])
    assert torch.equal(_bits(storage)[order], before[order]), "blocks came back as others"
    return {"blocks": blocks}
