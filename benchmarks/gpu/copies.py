"""Copying blocks within the cache, and to host memory and back."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.gpu.ceilings import by_bandwidth, shown
from benchmarks.gpu.items import Item, NotHere, Surroundings
from benchmarks.gpu.shapes import BLOCK_SIZE, Shape, kv_bytes, shapes
from engine.blocks import BlockCopy
from engine.kv_cache import KVCache
from engine.kv_format import KVFormat
from engine.swap_pool import SwapPool
from kernels.block_copy import copy_blocks
from kernels.kv_layout import KVStorage

GROUP = "copies"
_FORMATS = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


def items(dry: bool) -> list[Item]:
    found = []
    for shape in shapes(dry):
        for name, dtype in _FORMATS.items():
            for blocks in (64,) if dry else (64, 4096):
                run = partial(_copy, shape, dtype, 3 if dry else blocks)
                found.append(Item(f"copy of {blocks} blocks {name}, {shape.name}", GROUP, run))
        for way in ("out", "in"):
            run = partial(_swap, shape, way, 3 if dry else 256)
            found.append(Item(f"swap {way} of 256 blocks, {shape.name}", GROUP, run))
    return found


def _copy(shape: Shape, dtype: torch.dtype, blocks: int, given: Surroundings) -> dict[str, Any]:
    """Of one layer."""
    storage = _storage(given, shape, 1, 2 * blocks, dtype)
    order = torch.randperm(2 * blocks, generator=torch.Generator().manual_seed(2))
    sources, targets = order.to(given.device.torch_device).chunk(2)
    nbytes = 2 * kv_bytes(storage.layers[0], blocks * BLOCK_SIZE)
    run = partial(copy_blocks, storage, sources, targets, apart=True)
    times = given.device.times(run, nbytes=nbytes)
    return by_bandwidth(times, nbytes, given.known)


def _swap(shape: Shape, way: str, blocks: int, given: Surroundings) -> dict[str, Any]:
    """Of all layers; beside it what one large copy between page-locked memory and device takes."""
    device = given.device
    storage = _storage(given, shape, shape.layers, blocks, torch.bfloat16)
    cache = KVCache(blocks, BLOCK_SIZE, KVFormat(torch.bfloat16), storage)
    pool = SwapPool(cache, blocks)
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(3)).tolist()
    out = [BlockCopy(block, host) for host, block in enumerate(order)]
    back = [BlockCopy(copy.target, copy.source) for copy in out]
    pool.swap_out(out)
    nbytes = blocks * cache.block_bytes
    run = (lambda: pool.swap_out(out)) if way == "out" else (lambda: pool.swap_in(back))
    times = device.times(run, nbytes=nbytes, graph=False)
    there = torch.empty(nbytes, dtype=torch.uint8, device=device.torch_device)
    here = torch.empty(nbytes, dtype=torch.uint8, pin_memory=not device.dry)
    source, target = (there, here) if way == "out" else (here, there)
    whole = device.times(
        lambda: target.copy_(source, non_blocking=True), nbytes=nbytes, graph=False
    )
    figures = by_bandwidth(times, nbytes, {})
    return {**figures, "of_one_large_copy": shown(whole.median / times.median)}


def _storage(
    given: Surroundings, shape: Shape, layers: int, blocks: int, dtype: torch.dtype
) -> KVStorage:
    """Of arbitrary bits.

    Raises:
        NotHere: there is not the memory for it.
    """
    heads = layers * blocks * BLOCK_SIZE * shape.kv_heads
    needed, free = 2 * heads * (shape.head_dim * dtype.itemsize + 4), given.device.free_bytes()
    if needed > 0.8 * free:
        raise NotHere(f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} are free")
    return KVStorage.allocate(
        layers, blocks, BLOCK_SIZE, shape.kv_heads, shape.head_dim, dtype=dtype,
        device=given.device.torch_device,
    )  # fmt: skip
