"""Storing the keys and values of a step's tokens in their blocks."""

from __future__ import annotations

import torch

from kernels.kv_layout import LayerKV


def kv_write(keys: torch.Tensor, values: torch.Tensor, kv: LayerKV, slots: torch.Tensor) -> None:
    """Write each token's keys and values into its slot.

    Args:
        keys: [num_tokens, num_kv_heads, head_dim], rotated.
        values: the same shape.
        kv: the layer's storage, changed in place.
        slots: [num_tokens], int64, `block * block_size + offset`, all different.
    """
    kv.keys.flatten(0, 1).index_copy_(0, slots, keys)
    kv.values.flatten(0, 1).index_copy_(0, slots, values)
