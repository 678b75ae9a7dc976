"""Norms, rotation with the KV write, and the activation: what memory bounds beside attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.ceilings import by_bandwidth
from benchmarks.gpu.items import Item, Surroundings
from benchmarks.gpu.shapes import Shape, contexts, kv_bytes, layer, numbers, shapes
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.rope import rope_cos_sin
from kernels.rope_kv_write import HeadNormWeights, rope_kv_write
from kernels.silu_and_mul import silu_and_mul

GROUP = "elementwise"
_ROWS = (64, 8192)
_FORMATS = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}


def items(dry: bool) -> list[Item]:
    found = []
    for shape in shapes(dry):
        for rows in _ROWS[: 1 if dry else None]:
            tokens = 3 if dry else rows
            kinds: dict[str, Callable[[Surroundings], dict[str, Any]]] = {
                "rms_norm": partial(_rms_norm, shape, tokens),
                "add_rms_norm": partial(_add_rms_norm, shape, tokens),
                "silu_and_mul": partial(_silu_and_mul, shape, tokens),
            }
            for name, dtype in _FORMATS.items():
                kinds[f"rope_kv_write {name}"] = partial(_rope_kv_write, shape, tokens, dtype)
            found += [
                Item(f"{kind}, {rows} rows, {shape.name}", GROUP, run)
                for kind, run in kinds.items()
            ]
    return found


def _rms_norm(shape: Shape, rows: int, given: Surroundings) -> dict[str, Any]:
    x = numbers(given.device, rows, shape.hidden)
    weight = numbers(given.device, shape.hidden)
    times = given.device.times(lambda: rms_norm(x, weight, 1e-6), nbytes=2 * x.nbytes)
    return by_bandwidth(times, 2 * x.nbytes + weight.nbytes, given.known)


def _add_rms_norm(shape: Shape, rows: int, given: Surroundings) -> dict[str, Any]:
    x = numbers(given.device, rows, shape.hidden)
    weight, residual = numbers(given.device, shape.hidden), torch.zeros_like(x)
    times = given.device.times(lambda: add_rms_norm(x, residual, weight, 1e-6), nbytes=4 * x.nbytes)
    return by_bandwidth(times, 4 * x.nbytes + weight.nbytes, given.known)


def _silu_and_mul(shape: Shape, rows: int, given: Surroundings) -> dict[str, Any]:
    gate_up = numbers(given.device, rows, 2 * shape.inner)
    nbytes = gate_up.nbytes * 3 // 2
    times = given.device.times(lambda: silu_and_mul(gate_up), nbytes=nbytes)
    return by_bandwidth(times, nbytes, given.known)


def _rope_kv_write(
    shape: Shape, rows: int, dtype: torch.dtype, given: Surroundings
) -> dict[str, Any]:
    """One token of each of so many sequences."""
    device = given.device
    heads = shape.heads + 2 * shape.kv_heads
    kv = layer(device, shape, 16 * rows, dtype)
    slots = contexts(kv, [1] * rows, [5] * rows).slots
    qkv = numbers(device, rows, heads * shape.head_dim)
    frequencies = torch.arange(shape.head_dim // 2, device=device.torch_device).float().neg().exp()
    positions = torch.arange(rows, device=device.torch_device)
    cos_sin = rope_cos_sin(positions, frequencies, qkv.dtype)
    weight = numbers(device, shape.head_dim)
    norms = HeadNormWeights(weight, weight, 1e-6) if shape.qk_norm else None
    queries = rows * shape.heads * shape.head_dim * 2
    nbytes = qkv.nbytes + cos_sin[0].nbytes * 2 + queries + kv_bytes(kv, rows)
    times = device.times(lambda: rope_kv_write(qkv, cos_sin, norms, kv, slots), nbytes=nbytes)
    return by_bandwidth(times, nbytes, given.known)
