"""Paged attention of Llama-3-8B and of Qwen3-0.6B: the steps that need different kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.gpu.attention import paged_attention
from kernels.gpu.attention_limits import AttentionGeometry
from kernels.gpu.attention_plan import plan_attention_tiles
from kernels.kv_layout import LayerKV
from tests.kernels.gpu.aot.case import Case

_BF16 = torch.bfloat16
_KV_HEADS, _BLOCK = 8, 16
_DECODES = [(1, 1000)] * 64
_CHUNK_AND_DECODES = [(100, 60_000), *_DECODES]


def _step(
    lens: Sequence[tuple[int, int]],
    *,
    heads: int = 32,
    head_dim: int = 128,
    dtype: torch.dtype = _BF16,
    kv_dtype: torch.dtype = _BF16,
    window: int | None = None,
    batch_invariant: bool = False,
    softcap: float | None = None,
) -> object:
    kv = LayerKV.allocate(1000, _BLOCK, _KV_HEADS, head_dim, dtype=kv_dtype, device="meta")
    tables = [
        range(1000 * i, 1000 * i + tokens // _BLOCK + 1) for i, (_, tokens) in enumerate(lens)
    ]
    queries, contexts = zip(*lens, strict=True)
    metadata = AttentionMetadata.build(queries, contexts, tables, _BLOCK, torch.device("cpu"))
    geometry = AttentionGeometry.of(kv, heads)
    plan = plan_attention_tiles(metadata, geometry, window, batch_invariant=batch_invariant)
    tensors = [torch.empty(len(x), dtype=torch.int32, device="meta") for x in plan.arrays]
    tiles = plan.on_device(tensors)
    # Queries are columns of the projection's output.
    qkv = torch.empty(
        metadata.num_tokens, heads + 2 * _KV_HEADS, head_dim, dtype=dtype, device="meta"
    )
    storage = kv.keys, kv.values, kv.key_scales, kv.value_scales
    return paged_attention(
        qkv[:, :heads], *storage, *tiles.arguments, head_dim**-0.5, softcap, *tiles.launch
    )


def _case(name: str, *lens: tuple[int, int], large: bool = False, pinned: bool = False, **step):
    return Case(
        f"attention {name}", lambda: _step(lens, **step), wgmma=large, async_copies=True,
        pinned=pinned,
    )  # fmt: skip


CASES = (
    _case("bf16 decode", *_DECODES, pinned=True),
    _case("bf16 chunk and decodes", *_CHUNK_AND_DECODES, large=True, pinned=True),
    _case("bf16 window softcap", *_CHUNK_AND_DECODES, window=500, softcap=50.0, large=True),
    _case("bf16 batch-invariant", *_DECODES, batch_invariant=True, large=True),
    _case("bf16 short chunk of groups of 2", (20, 100), heads=16, large=True),
    _case("bf16 decode of width 64", *_DECODES, head_dim=64),
    _case("bf16 chunk of width 256", (200, 300), head_dim=256, large=True),
    _case("fp8_e4m3 decode", *_DECODES, kv_dtype=torch.float8_e4m3fn),
    _case("fp8_e4m3 chunk", (200, 300), kv_dtype=torch.float8_e4m3fn, large=True),
    _case("fp8_e5m2 decode", *_DECODES, kv_dtype=torch.float8_e5m2),
    _case("int8 decode", *_DECODES, kv_dtype=torch.int8),
    _case("float32 decode", *_DECODES, dtype=torch.float32, kv_dtype=torch.float32),
    # Narrower than matrix products are.
    _case(
        "float32 decode of width 8",
        *_DECODES,
        head_dim=8,
        dtype=torch.float32,
        kv_dtype=torch.float32,
    ),
)
