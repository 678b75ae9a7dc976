"""What the device reaches at most, measured in the same run: all else is a share of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.gpu.device import Times
from benchmarks.gpu.items import Item, NotHere, Surroundings
from benchmarks.gpu.shapes import numbers

COPY, MATMUL = "ceiling: copy", "ceiling: bf16 matmul"
_SIDES = (4096, 8192, 16384)


def items(dry: bool) -> list[Item]:
    return [
        Item("device", "targets", _device),
        Item(COPY, "targets", _copy),
        Item(MATMUL, "targets", _matmul),
    ]


def shown(value: float) -> float:
    """Five digits of it."""
    return float(f"{value:.5g}")


def by_bandwidth(times: Times, nbytes: float, known: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of something that memory bounds: bytes a second, and as a share of the copy's."""
    rate = nbytes / times.median / 1e9
    found = {**times.figures(), "gb_per_s": shown(rate)}
    if COPY in known:
        found["of_copy"] = round(rate / known[COPY]["gb_per_s"], 4)
    return found


def by_rate(times: Times, flops: float, known: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of something that arithmetic bounds: FLOP/s, and as a share of the product's."""
    rate = flops / times.median / 1e12
    found = {**times.figures(), "tflop_per_s": shown(rate)}
    if MATMUL in known:
        found["of_matmul"] = round(rate / known[MATMUL]["tflop_per_s"], 4)
    return found


def _device(given: Surroundings) -> dict[str, Any]:
    if given.device.dry:
        return {"name": "none"}
    found = torch.cuda.get_device_properties(given.device.torch_device)
    return {
        "name": found.name, "capability": f"{found.major}.{found.minor}",
        "memory_gib": round(found.total_memory / 2**30, 1),
        "multiprocessors": found.multi_processor_count,
        "l2_mib": round(getattr(found, "L2_cache_size", 0) / 2**20, 1),
        "free_gib": round(given.device.free_bytes() / 2**30, 1),
    }  # fmt: skip


def _copy(given: Surroundings) -> dict[str, Any]:
    """Large tensors, read and written; and one that is only read, as attention mostly does."""
    device = given.device
    size = 1 << 10 if device.dry else min(4 << 30, device.free_bytes() // 4)
    source = torch.zeros(size // 4, device=device.torch_device)
    target = torch.empty_like(source)
    copied = device.times(lambda: target.copy_(source), nbytes=2 * size)
    read = device.times(source.sum, nbytes=size)
    figures = by_bandwidth(copied, 2 * size, {})
    return {**figures, "read_gb_per_s": shown(size / read.median / 1e9)}


def _matmul(given: Surroundings) -> dict[str, Any]:
    """The best of some sizes."""
    found = []
    for side in (32,) if given.device.dry else _SIDES:
        if 8 * side * side > given.device.free_bytes():
            continue
        a, b = (numbers(given.device, side, side) for _ in range(2))
        output = torch.empty_like(a)

        def product(a: torch.Tensor = a, b: torch.Tensor = b, c: torch.Tensor = output) -> None:
            torch.mm(a, b, out=c)

        times = given.device.times(product, nbytes=6 * side * side, cold=False)
        found.append({"side": side, **by_rate(times, 2 * side**3, {})})
    if not found:
        raise NotHere("there is no memory for a product")
    return max(found, key=lambda figures: figures["tflop_per_s"])
