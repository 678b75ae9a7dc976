"""How one layer's keys and values lie in memory, as every kernel sees them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LayerKV:
    """Keys and values of one layer, in blocks.

    Token `t` of a sequence lies in block `block_table[t // block_size]` at
    `t % block_size`. Blocks that no sequence has written hold arbitrary bits, NaN included.

    Attributes:
        keys: [num_blocks, block_size, num_kv_heads, head_dim], rotated already.
        values: the same shape and dtype as `keys`.
        scales: what stored numbers are multiplied by, for formats that need it; the
            floating-point formats have None.
    """

    keys: torch.Tensor
    values: torch.Tensor
    scales: torch.Tensor | None = None

    @property
    def num_blocks(self) -> int:
        return self.keys.shape[0]

    @property
    def block_size(self) -> int:
        return self.keys.shape[1]

    @property
    def num_kv_heads(self) -> int:
        return self.keys.shape[2]

    @property
    def head_dim(self) -> int:
        return self.keys.shape[3]
