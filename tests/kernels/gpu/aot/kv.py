"""Writing and moving the KV cache, of the shapes of Llama-3-8B and of Qwen3-0.6B."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.gpu.block_copy import copy_blocks, read_blocks, write_blocks
from kernels.gpu.rope_kv_write import rope_kv_write
from kernels.kv_layout import KVStorage, LayerKV
from tests.kernels.gpu.aot.case import Case

_BF16 = torch.bfloat16


def _empty(*shape: int, dtype: torch.dtype = _BF16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _write(heads: int, kv_dtype: torch.dtype, *, normalized: bool = False) -> object:
    tokens, kv_heads, head_dim = 64, 8, 128
    kv = LayerKV.allocate(1000, 16, kv_heads, head_dim, dtype=kv_dtype, device="meta")
    norm = _empty(head_dim) if normalized else None
    angles = _empty(tokens, 1, head_dim // 2)
    return rope_kv_write(
        _empty(tokens, (heads + 2 * kv_heads) * head_dim), angles, angles, norm, norm, 1e-6,
        kv.keys, kv.values, kv.key_scales, kv.value_scales, _empty(tokens, dtype=torch.int64),
    )  # fmt: skip


def _storage(kv_dtype: torch.dtype) -> KVStorage:
    return KVStorage.allocate(32, 1000, 16, 8, 128, dtype=kv_dtype, device="meta")


def _copy(kv_dtype: torch.dtype) -> object:
    kv, blocks = _storage(kv_dtype), _empty(64, dtype=torch.int64)
    return copy_blocks(kv.numbers, kv.scales, blocks, blocks)


def _read() -> object:
    kv = _storage(_BF16)
    bits = _empty(64, kv.block_words, dtype=torch.int32)
    return read_blocks(kv.numbers, kv.scales, _empty(64, dtype=torch.int64), bits)


def _write_back(kv_dtype: torch.dtype) -> object:
    kv = _storage(kv_dtype)
    bits = _empty(64, kv.block_words, dtype=torch.int32)
    return write_blocks(kv.numbers, kv.scales, _empty(64, dtype=torch.int64), bits)


CASES = (
    Case("copy_blocks bf16", lambda: _copy(_BF16)),
    Case("copy_blocks int8", lambda: _copy(torch.int8), pinned=True),
    Case("read_blocks bf16", _read),
    Case("write_blocks fp8_e4m3", lambda: _write_back(torch.float8_e4m3fn)),
    Case("rope_kv_write bf16", lambda: _write(32, _BF16)),
    Case("rope_kv_write bf16 normalized", lambda: _write(16, _BF16, normalized=True), pinned=True),
    Case("rope_kv_write bf16 to fp8_e4m3", lambda: _write(32, torch.float8_e4m3fn), pinned=True),
    Case("rope_kv_write bf16 to fp8_e5m2", lambda: _write(32, torch.float8_e5m2)),
    Case("rope_kv_write bf16 to int8", lambda: _write(32, torch.int8)),
)
