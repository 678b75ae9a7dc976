"""The keys and values of all layers, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.blocks import BlockCopy
from engine.kv_format import KVFormat
from engine.models.config import ModelConfig
from kernels.block_copy import copy_blocks
from kernels.host_tensors import integers
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

    @property
    def device(self) -> torch.device:
        return self.layers[0].keys.device

    @property
    def block_bytes(self) -> int:
        """Bytes of one block: its keys and values in all layers."""
        return 2 * len(self.layers) * self.layers[0].keys[0].nbytes

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy whole blocks in all layers, as if at the same moment."""
        if not copies:
            return
        sources = integers([copy.source for copy in copies], self.device)
        targets = integers([copy.target for copy in copies], self.device)
        for layer in self.layers:
            copy_blocks(layer, sources, targets)

    def empty_blocks(self, count: int) -> torch.Tensor:
        """Room for whole blocks beside the cache: [count, num_layers, 2, numbers of a block].

        Keys come before values, and their numbers as they lie in the cache; the bits are
        arbitrary.
        """
        keys = self.layers[0].keys
        shape = count, len(self.layers), 2, keys[0].numel()
        return torch.empty(shape, dtype=keys.dtype, device=keys.device)

    def read_blocks(self, blocks: Sequence[int]) -> torch.Tensor:
        """Copies of whole blocks, as in `empty_blocks`."""
        ids = integers(blocks, self.device)
        found = self.empty_blocks(len(blocks))
        for number, layer in enumerate(self.layers):
            for part, stored in enumerate((layer.keys, layer.values)):
                found[:, number, part] = stored.view(self.num_blocks, -1).index_select(0, ids)
        return found

    def write_blocks(self, blocks: Sequence[int], numbers: torch.Tensor) -> None:
        """Overwrite whole blocks with what `read_blocks` gave."""
        ids = integers(blocks, self.device)
        for number, layer in enumerate(self.layers):
            for part, stored in enumerate((layer.keys, layer.values)):
                stored.view(self.num_blocks, -1).index_copy_(0, ids, numbers[:, number, part])

    def _on_device(self, blocks: Sequence[int]) -> torch.Tensor:
        return integers(blocks, self.device)


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block: keys and values of `block_size` tokens in all layers."""
    numbers = 2 * config.num_layers * block_size * config.num_kv_heads * config.head_dim
    return numbers * dtype.itemsize
