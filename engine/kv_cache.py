"""The keys and values of all layers, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.blocks import BlockCopy
from engine.kv_format import KVFormat
from engine.models.config import ModelConfig
from kernels.block_copy import copy_blocks, read_blocks, write_blocks
from kernels.host_tensors import integers
from kernels.kv_layout import KVStorage, LayerKV
from kernels.kv_quantization import scale_bytes


@dataclass(frozen=True, slots=True)
class KVCache:
    """One pool of blocks; block `b` is the same place in every layer.

    A block id names a place and its format. Callers take storage from `layer()` and sizes
    from the attributes, and never assume how the numbers lie in memory.

    Attributes:
        format: how numbers are stored.
        storage: all layers, scales included.
    """

    num_blocks: int
    block_size: int
    format: KVFormat
    storage: KVStorage

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
        storage = KVStorage.allocate(
            config.num_layers,
            num_blocks,
            block_size,
            config.num_kv_heads,
            config.head_dim,
            dtype=format.dtype,
            device=device,
            by_head=format.by_head,
        )
        return cls(num_blocks, block_size, format, storage)

    @property
    def layers(self) -> tuple[LayerKV, ...]:
        return self.storage.layers

    def layer(self, index: int) -> LayerKV:
        return self.storage.layers[index]

    @property
    def device(self) -> torch.device:
        return self.storage.numbers.device

    @property
    def block_bytes(self) -> int:
        """Bytes of one block: its keys, values and their scales in all layers."""
        return 4 * self.storage.block_words

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy whole blocks in all layers, as if at the same moment."""
        if not copies:
            return
        sources, targets = zip(*((copy.source, copy.target) for copy in copies), strict=True)
        copy_blocks(
            self.storage,
            integers(sources, self.device),
            integers(targets, self.device),
            apart=set(sources).isdisjoint(targets),
        )

    def empty_blocks(self, count: int) -> torch.Tensor:
        """Room for whole blocks beside the cache: [count, words], int32, with arbitrary bits."""
        return self.storage.numbers.new_empty((count, self.storage.block_words))

    def read_blocks(self, blocks: Sequence[int], out: torch.Tensor | None = None) -> torch.Tensor:
        """Copies of whole blocks, as in `empty_blocks`; `out` is where to, if not to new memory."""
        return read_blocks(self.storage, integers(blocks, self.device), out)

    def write_blocks(self, blocks: Sequence[int], bits: torch.Tensor) -> None:
        """Overwrite whole blocks with what `read_blocks` gave."""
        write_blocks(self.storage, integers(blocks, self.device), bits)


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block: keys, values and scales of `block_size` tokens in all layers."""
    heads = 2 * config.num_layers * block_size * config.num_kv_heads
    return heads * (config.head_dim * dtype.itemsize + scale_bytes(dtype))
