"""The keys and values of all layers, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.blocks import BlockCopy
from engine.kv_format import KVFormat
from engine.models.config import ModelConfig
from kernels.block_copy import copy_blocks
from kernels.kv_layout import LayerKV


@dataclass(frozen=True, slots=True)
class KVCache:
    """One pool of blocks; block `b` is the same place in every layer.

    A block id names a place and its format. Callers take storage from `layer()` and sizes
    from the attributes, and never assume how the numbers lie in memory.

    Attributes:
        format: how numbers are stored.
        layers: one `LayerKV` a layer.
    """

    num_blocks: int
    block_size: int
    format: KVFormat
    layers: tuple[LayerKV, ...]

    @classmethod
    def create(
        cls,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        format: KVFormat,
        device: torch.device | str,
    ) -> KVCache:
        """Allocate a pool. Its bits are arbitrary until a step writes them."""
        layers = tuple(
            LayerKV.allocate(
                num_blocks,
                block_size,
                config.num_kv_heads,
                config.head_dim,
                dtype=format.dtype,
                device=device,
                by_head=format.by_head,
            )
            for _ in range(config.num_layers)
        )
        return cls(num_blocks, block_size, format, layers)

    def layer(self, index: int) -> LayerKV:
        return self.layers[index]

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy whole blocks in all layers, as if at the same moment."""
        if not copies:
            return
        device = self.layers[0].keys.device
        sources = torch.tensor([copy.source for copy in copies]).to(device, non_blocking=True)
        targets = torch.tensor([copy.target for copy in copies]).to(device, non_blocking=True)
        for layer in self.layers:
            copy_blocks(layer, sources, targets)


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block: keys and values of `block_size` tokens in all layers."""
    numbers = 2 * config.num_layers * block_size * config.num_kv_heads * config.head_dim
    return numbers * dtype.itemsize
