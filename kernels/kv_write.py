"""Storing the keys and values of a step's tokens in their blocks."""

from __future__ import annotations

import torch

from kernels.kv_layout import LayerKV


def kv_write(keys: torch.Tensor, values: torch.Tensor, kv: LayerKV, slots: torch.Tensor) -> None:
    """Write each token's keys and values into its slot, rounded to the dtype of the storage.

    Args:
        keys: [num_tokens, num_kv_heads, head_dim], rotated.
        values: the same shape.
        kv: the layer's storage, changed in place.
        slots: [num_tokens], int64, `block * block_size + offset`, all different.
    """
    if not kv.by_head:
        kv.keys.flatten(0, 1).index_copy_(0, slots, keys.to(kv.keys.dtype))
        kv.values.flatten(0, 1).index_copy_(0, slots, values.to(kv.values.dtype))
        return
    block, offset = slots // kv.block_size, slots % kv.block_size
    kv.keys[block, :, :, offset] = keys.to(kv.keys.dtype)
    kv.values[block, :, offset] = values.to(kv.values.dtype)
