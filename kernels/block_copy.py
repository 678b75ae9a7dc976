"""Copying whole KV blocks of a layer."""

from __future__ import annotations

import torch

from kernels.kv_layout import LayerKV


def copy_blocks(kv: LayerKV, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """Copy blocks; all are read before one is written, so a source may also be a target.

    Args:
        sources, targets: [copies], int64 block ids on the device of `kv`; no target twice.
    """
    for stored in (kv.keys, kv.values):
        stored.index_copy_(0, targets, stored.index_select(0, sources))
