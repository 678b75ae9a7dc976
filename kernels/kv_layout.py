"""How keys and values lie in memory, as every kernel sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernels.kv_quantization import QUANTIZED, dequantize


@dataclass(frozen=True, slots=True)
class LayerKV:
    """Keys and values of one layer, in blocks.

    Token `t` of a sequence lies in block `block_table[t // block_size]` at
    `t % block_size`. Blocks that no sequence has written hold arbitrary bits, NaN included.

    There are two layouts. Token by token, which torch's own operations read best: keys and
    values are [num_blocks, block_size, num_kv_heads, head_dim]. Head by head, which the C++
    kernels read in place: keys are [num_blocks, num_kv_heads, head_dim, block_size], so that one
    vector holds the same dimension of neighbouring tokens, and values [num_blocks, num_kv_heads,
    block_size, head_dim].

    Formats of 8 bits have scales: see `kernels.kv_quantization`. They lie beside the numbers, token
    by token, with a last dimension of groups of a head's numbers: one group so far.

    Attributes:
        keys: rotated already.
        values: of the dtype of `keys`.
        key_scales, value_scales: [num_blocks, block_size, num_kv_heads, groups], float32, what
            stored numbers are multiplied by; None in the other formats.
        by_head: which layout this is.
    """

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None
    by_head: bool = False

    @classmethod
    def allocate(
        cls,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        by_head: bool = False,
    ) -> LayerKV:
        """A layer's storage with arbitrary bits."""
        keys, values = _shapes(num_blocks, block_size, num_kv_heads, head_dim, by_head=by_head)
        key_scales = value_scales = None
        if dtype in QUANTIZED:
            key_scales = torch.empty((num_blocks, block_size, num_kv_heads, 1), device=device)
            value_scales = torch.empty_like(key_scales)
        return cls(
            keys=torch.empty(keys, dtype=dtype, device=device),
            values=torch.empty(values, dtype=dtype, device=device),
            key_scales=key_scales,
            value_scales=value_scales,
            by_head=by_head,
        )

    @property
    def num_blocks(self) -> int:
        return self.keys.shape[0]

    @property
    def block_size(self) -> int:
        return self.keys.shape[3 if self.by_head else 1]

    @property
    def num_kv_heads(self) -> int:
        return self.values.shape[1 if self.by_head else 2]

    @property
    def head_dim(self) -> int:
        return self.values.shape[3]

    def by_token(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of all keys and values, each [num_blocks, block_size, num_kv_heads, head_dim]."""
        if not self.by_head:
            return self.keys, self.values
        return self.keys.permute(0, 3, 1, 2), self.values.permute(0, 2, 1, 3)

    def read(self, blocks: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the keys and values of some blocks, each [tokens, num_kv_heads, head_dim].

        They are float32 where the format has scales.
        """
        chosen = list(blocks)
        keys, values = (stored[chosen].flatten(0, 1) for stored in self.by_token())
        if self.key_scales is None or self.value_scales is None:
            return keys, values
        return (
            dequantize(keys, self.key_scales[chosen].flatten(0, 1)),
            dequantize(values, self.value_scales[chosen].flatten(0, 1)),
        )


@dataclass(frozen=True, slots=True)
class KVStorage:
    """The keys and values of all layers in one piece, so that one kernel moves whole blocks.

    Attributes:
        numbers: [num_layers, 2, num_blocks, words of a block], int32: bits of the keys and of the
            values as they lie in `LayerKV`.
        scales: [num_layers, 2, num_blocks, scales of a block], float32; None without scales.
        layers: views of them.
    """

    numbers: torch.Tensor
    scales: torch.Tensor | None
    layers: tuple[LayerKV, ...]

    @classmethod
    def allocate(
        cls,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        by_head: bool = False,
    ) -> KVStorage:
        """Storage with arbitrary bits.

        Raises:
            ValueError: the numbers of a block do not fill whole words.
        """
        heads = block_size * num_kv_heads
        words, rest = divmod(heads * head_dim * dtype.itemsize, 4)
        if rest:
            raise ValueError(f"{block_size} tokens of {num_kv_heads} heads do not fill whole words")
        places = (num_layers, 2, num_blocks)
        numbers = torch.empty((*places, words), dtype=torch.int32, device=device)
        scales = torch.empty((*places, heads), device=device) if dtype in QUANTIZED else None
        shapes = _shapes(num_blocks, block_size, num_kv_heads, head_dim, by_head=by_head)
        one_each = (num_blocks, block_size, num_kv_heads, 1)
        layers = tuple(
            LayerKV(
                keys=numbers[i, 0].view(dtype).view(shapes[0]),
                values=numbers[i, 1].view(dtype).view(shapes[1]),
                key_scales=None if scales is None else scales[i, 0].view(one_each),
                value_scales=None if scales is None else scales[i, 1].view(one_each),
                by_head=by_head,
            )
            for i in range(num_layers)
        )
        return cls(numbers, scales, layers)

    @property
    def block_words(self) -> int:
        """Words of 4 bytes of a block: its numbers and scales in all layers."""
        return sum(part.shape[1] for part in self.parts())

    def parts(self) -> Iterator[torch.Tensor]:
        """Views that hold all bits, each [num_blocks, words], int32: all numbers, then scales."""
        for stored in (self.numbers, self.scales):
            if stored is not None:
                yield from stored.view(torch.int32).flatten(0, 1)


def _shapes(
    num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, *, by_head: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of keys and of values."""
    if by_head:
        keys = num_blocks, num_kv_heads, head_dim, block_size
        return keys, (num_blocks, num_kv_heads, block_size, head_dim)
    by_token = num_blocks, block_size, num_kv_heads, head_dim
    return by_token, by_token
