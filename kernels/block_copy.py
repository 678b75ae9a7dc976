"""Copying whole KV blocks of all layers, bit by bit: keys, values and scales."""

from __future__ import annotations

import torch

from kernels.gpu.library import find as find_gpu
from kernels.kv_layout import KVStorage


def copy_blocks(
    storage: KVStorage, sources: torch.Tensor, targets: torch.Tensor, *, apart: bool = False
) -> None:
    """Copy blocks; all are read before one is written, so a source may also be a target.

    Args:
        sources, targets: [copies], int64 block ids on the device of `storage`; no target twice.
        apart: no source is also a target, which on a GPU saves a copy.
    """
    on_gpu = find_gpu("copy_blocks", storage.numbers.device)
    if on_gpu is None:
        copy_blocks_reference(storage, sources, targets)
    elif apart:
        on_gpu(storage.numbers, storage.scales, sources, targets)
    else:
        write_blocks(storage, targets, read_blocks(storage, sources))


def copy_blocks_reference(storage: KVStorage, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """The specification of `copy_blocks`, of any device and format."""
    for part in storage.parts():
        part.index_copy_(0, targets, part.index_select(0, sources))


def read_blocks(
    storage: KVStorage, blocks: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Copies of whole blocks.

    Args:
        blocks: [count], int64 block ids on the device of `storage`.
        out: where to, instead of new memory.

    Returns:
        [count, `storage.block_words`], int32: the parts of each block one after the other.
    """
    if out is None:
        out = storage.numbers.new_empty((blocks.shape[0], storage.block_words))
    on_gpu = find_gpu("read_blocks", blocks.device)
    if on_gpu is not None:
        on_gpu(storage.numbers, storage.scales, blocks, out)
    else:
        read_blocks_reference(storage, blocks, out)
    return out


def read_blocks_reference(storage: KVStorage, blocks: torch.Tensor, out: torch.Tensor) -> None:
    """The specification of `read_blocks`, of any device and format."""
    at = 0
    for part in storage.parts():
        out[:, at : at + part.shape[1]] = part.index_select(0, blocks)
        at += part.shape[1]


def write_blocks(storage: KVStorage, blocks: torch.Tensor, bits: torch.Tensor) -> None:
    """Overwrite whole blocks with what `read_blocks` gave.

    Args:
        blocks: [count], int64 block ids, all different, on the device of `storage`.
    """
    on_gpu = find_gpu("write_blocks", blocks.device)
    if on_gpu is not None:
        on_gpu(storage.numbers, storage.scales, blocks, bits)
    else:
        write_blocks_reference(storage, blocks, bits)


def write_blocks_reference(storage: KVStorage, blocks: torch.Tensor, bits: torch.Tensor) -> None:
    """The specification of `write_blocks`, of any device and format."""
    at = 0
    for part in storage.parts():
        part.index_copy_(0, blocks, bits[:, at : at + part.shape[1]])
        at += part.shape[1]
