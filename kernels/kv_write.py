"""Storing the keys and values of a step's tokens in their blocks."""

from __future__ import annotations

import torch

from kernels.kv_layout import LayerKV
from kernels.kv_quantization import quantize


def kv_write(keys: torch.Tensor, values: torch.Tensor, kv: LayerKV, slots: torch.Tensor) -> None:
    """Write each token's keys and values into its slot, rounded to the format of the storage.

    Args:
        keys: [num_tokens, num_kv_heads, head_dim], rotated.
        values: the same shape.
        kv: the layer's storage, changed in place.
        slots: [num_tokens], int64, `block * block_size + offset`, all different.
    """
    if kv.key_scales is not None and kv.value_scales is not None:
        parts = ((keys, kv.keys, kv.key_scales), (values, kv.values, kv.value_scales))
        for numbers, stored, scales in parts:
            rounded, factors = quantize(numbers, stored.dtype)
            # Bits, as not every operation knows every format.
            bits = stored.view(torch.uint8).flatten(0, 1)
            bits.index_copy_(0, slots, rounded.view(torch.uint8))
            scales.flatten(0, 1).index_copy_(0, slots, factors)
        return
    if not kv.by_head:
        kv.keys.flatten(0, 1).index_copy_(0, slots, keys.to(kv.keys.dtype))
        kv.values.flatten(0, 1).index_copy_(0, slots, values.to(kv.values.dtype))
        return
    block, offset = slots // kv.block_size, slots % kv.block_size
    kv.keys[block, :, :, offset] = keys.to(kv.keys.dtype)
    kv.values[block, :, offset] = values.to(kv.values.dtype)
