"""From the product of the query, key and value projections to queries and written blocks.

Query and key heads are normalized where the model does that (Henry et al., 2020,
arXiv:2010.04245), and rotated by their positions; keys and values go to their slots.
"""

from __future__ import annotations

from ctypes import c_float, c_int64, c_void_p
from dataclasses import dataclass

import torch

from kernels.cpu.library import find
from kernels.gpu.library import find as find_gpu
from kernels.kv_layout import LayerKV
from kernels.kv_quantization import QUANTIZED
from kernels.kv_write import kv_write
from kernels.rms_norm import rms_norm
from kernels.rope import apply_rope

_KERNELS = {torch.float32: "rope_kv_write_float32", torch.float16: "rope_kv_write_float16"}
_ARGUMENTS = (*(c_void_p,) * 5, c_float, *(c_void_p,) * 4, *(c_int64,) * 5)


@dataclass(frozen=True, slots=True)
class HeadNormWeights:
    """What normalization multiplies each head of queries and of keys by.

    Attributes:
        queries, keys: [head_dim], of the dtype of the model.
        eps: added to the mean square.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    eps: float


def rope_kv_write(
    qkv: torch.Tensor,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    norms: HeadNormWeights | None,
    kv: LayerKV,
    slots: torch.Tensor,
) -> torch.Tensor:
    """Normalize and rotate queries and keys, and store keys and values.

    A head of values that are not all finite is stored as zeros, and its key as NaN. Those that
    attend to the token become NaN, and no others: where attention is masked, the score of a key is
    passed over, but a probability of 0 times a value that is NaN would be NaN. The kernel of a
    processor, whose attention does not multiply what it masks, stores both as they are.

    Args:
        qkv: [num_tokens, heads * head_dim]; the heads are those of queries, of keys, of values.
        cos_sin: each [num_tokens, 1, head_dim / 2], of the dtype of `qkv`.
        norms: None where the model does not normalize heads.
        kv: the layer's storage, changed in place.
        slots: [num_tokens], int64, `block * block_size + offset`, all different. On a GPU they may
            be int32, and a token with a negative one is padding: nothing is stored of it.

    Returns:
        The queries, [num_tokens, query heads, head_dim].
    """
    on_gpu = None if kv.by_head else find_gpu("rope_kv_write", qkv.device)
    if on_gpu is not None:
        weights = (norms.queries, norms.keys, norms.eps) if norms is not None else (None, None, 0.0)
        storage = kv.keys, kv.values, kv.key_scales, kv.value_scales
        return on_gpu(qkv, *cos_sin, *weights, *storage, slots)
    if kv.by_head and qkv.is_cpu and qkv.dtype is torch.float32 and kv.keys.dtype in _KERNELS:
        kernel = find(_KERNELS[kv.keys.dtype], *_ARGUMENTS)
        if kernel is not None:
            kv_heads, head_dim = kv.num_kv_heads, kv.head_dim
            num_tokens, width = qkv.shape
            num_heads = width // head_dim - 2 * kv_heads
            qkv, cos, sin = qkv.contiguous(), cos_sin[0].contiguous(), cos_sin[1].contiguous()
            queries = qkv.new_empty((num_tokens, num_heads, head_dim))
            kernel(
                qkv.data_ptr(),
                cos.data_ptr(),
                sin.data_ptr(),
                norms.queries.data_ptr() if norms is not None else None,
                norms.keys.data_ptr() if norms is not None else None,
                norms.eps if norms is not None else 0.0,
                slots.data_ptr(),
                queries.data_ptr(),
                kv.keys.data_ptr(),
                kv.values.data_ptr(),
                num_tokens,
                num_heads,
                kv_heads,
                head_dim,
                kv.block_size,
            )
            return queries
    return rope_kv_write_reference(qkv, cos_sin, norms, kv, slots)


def rope_kv_write_reference(
    qkv: torch.Tensor,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    norms: HeadNormWeights | None,
    kv: LayerKV,
    slots: torch.Tensor,
) -> torch.Tensor:
    """The specification of `rope_kv_write`, of any device, dtype and layout."""
    heads = qkv.view(qkv.shape[0], qkv.shape[1] // kv.head_dim, kv.head_dim)
    kv_heads = kv.num_kv_heads
    queries_keys, values = heads[:, :-kv_heads], heads[:, -kv_heads:]
    if norms is not None:
        queries, keys = queries_keys[:, :-kv_heads], queries_keys[:, -kv_heads:]
        normalized = (
            rms_norm(queries, norms.queries, norms.eps),
            rms_norm(keys, norms.keys, norms.eps),
        )
        queries_keys = torch.cat(normalized, dim=1)
    rotated = apply_rope(queries_keys, *cos_sin)
    keys, values = _with_finite_values(rotated[:, -kv_heads:], values, kv.keys.dtype)
    kv_write(keys, values, kv, slots)
    return rotated[:, :-kv_heads]


def _with_finite_values(
    keys: torch.Tensor, values: torch.Tensor, stored: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `rope_kv_write`.

    Args:
        keys, values: [num_tokens, kv_heads, head_dim].
        stored: the dtype of the cache.
    """
    kept = values if stored in QUANTIZED else values.to(stored)
    broken = ~kept.isfinite().all(-1, keepdim=True)
    return keys.masked_fill(broken, torch.nan), values.masked_fill(broken, 0)
