"""Copying blocks within the cache, and to host memory and back."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.ceilings import by_bandwidth, shown
from benchmarks.gpu.device import Device, Function, Times
from benchmarks.gpu.items import Item, NotHere, Surroundings
from benchmarks.gpu.shapes import BLOCK_SIZE, Shape, shapes
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
            for blocks in (64,) if dry else (8, 512):
                run = partial(_copy, shape, dtype, 3 if dry else blocks)
                found.append(Item(f"copy of {blocks} blocks {name}, {shape.name}", GROUP, run))
        for way in ("out", "in"):
            run = partial(_swap, shape, way, 3 if dry else 256)
            found.append(Item(f"swap {way} of 256 blocks, {shape.name}", GROUP, run))
    return found


def _cache(shape: Shape, dtype: torch.dtype, blocks: int, given: Surroundings) -> KVCache:
    """All layers of a model.

    Raises:
        NotHere: there is not the memory for it.
    """
    needed = 2 * shape.layers * blocks * BLOCK_SIZE * shape.kv_heads
    needed *= shape.head_dim * dtype.itemsize + 4
    free = given.device.free_bytes()
    if needed > 0.4 * free:  # what is copied goes elsewhere, too
        raise NotHere(f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} are free")
    storage = KVStorage.allocate(
        shape.layers, blocks, BLOCK_SIZE, shape.kv_heads, shape.head_dim, dtype=dtype,
        device=given.device.torch_device,
    )  # fmt: skip
    for stored in (storage.numbers, storage.scales):
        if stored is not None:
            stored.zero_()
    return KVCache(blocks, BLOCK_SIZE, KVFormat(dtype), storage)


def _copy(shape: Shape, dtype: torch.dtype, blocks: int, given: Surroundings) -> dict[str, Any]:
    """In all layers."""
    cache = _cache(shape, dtype, 2 * blocks, given)
    order = torch.randperm(2 * blocks, generator=torch.Generator().manual_seed(2))
    sources, targets = order.to(given.device.torch_device).chunk(2)
    nbytes = 2 * blocks * cache.block_bytes
    times = given.device.times(
        lambda: copy_blocks(cache.storage, sources, targets, apart=True), nbytes=nbytes
    )
    return by_bandwidth(times, nbytes, given.known)


def _swap(shape: Shape, way: str, blocks: int, given: Surroundings) -> dict[str, Any]:
    """Of all layers; beside it what one large copy between page-locked memory and device takes."""
    device = given.device
    cache = _cache(shape, torch.bfloat16, blocks, given)
    pool = SwapPool(cache, blocks)
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(3)).tolist()
    out = [BlockCopy(block, host) for host, block in enumerate(order)]
    back = [BlockCopy(copy.target, copy.source) for copy in out]
    pool.swap_out(out)
    nbytes = blocks * cache.block_bytes
    # The copies are made on streams of their own, so the host's clock it is.
    swaps = {"out": lambda: pool.swap_out(out), "in": lambda: pool.swap_in(back)}
    took = _seconds(device, swaps[way])
    there = torch.empty(nbytes, dtype=torch.uint8, device=device.torch_device)
    here = torch.empty(nbytes, dtype=torch.uint8, pin_memory=not device.dry)
    source, target = (there, here) if way == "out" else (here, there)
    whole = _seconds(device, lambda: target.copy_(source, non_blocking=True))
    return {
        **took.figures(),
        "gb_per_s": shown(nbytes / took.median / 1e9),
        "of_one_large_copy": shown(whole.median / took.median),
    }


def _seconds(device: Device, function: Function, repetitions: int = 7) -> Times:
    """By the host's clock, from an idle device to an idle device."""
    found = []
    for _ in range(2 if device.dry else 1 + repetitions):
        device.synchronize()
        began = time.perf_counter()
        function()
        device.synchronize()
        found.append(time.perf_counter() - began)
    return Times.of(found[1:], "host")
