"""KV blocks on their way between a GPU and page-locked memory, while the GPU computes.

A kernel gathers blocks of all layers into one buffer, which goes to the host in few large pieces;
the way back is the same. There are two buffers, so that one is filled while the other is emptied.
What needs which order, and where it comes from:

- A KV block is read before a later step writes it, and written before one reads it: gathering and
  scattering are work of the stream that computes.
- A host block is read only when it has been written: all copies with the host are on one stream.
- A buffer is read when it is full, and filled anew when it has been read: by events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from engine.copy_streams import CopyStreams, Event
from engine.kv_cache import KVCache

_BUFFERS = 2


@dataclass(slots=True)
class _Buffer:
    """Memory of the device.

    Attributes:
        bits: [blocks, words], as of `KVCache.empty_blocks`.
        free: when what it held last has been read.
    """

    bits: torch.Tensor
    free: Event


class StagedCopies:
    """Copies groups of blocks.

    Args:
        group: the most blocks of a group, for which memory is taken now.
    """

    def __init__(self, kv_cache: KVCache, group: int, streams: CopyStreams) -> None:
        self._kv_cache, self._streams = kv_cache, streams
        # Of memory that others had before: what they still compute there comes first.
        self._buffers = [
            _Buffer(kv_cache.empty_blocks(group), streams.compute(_nothing))
            for _ in range(_BUFFERS)
        ]

    def out(self, blocks: Sequence[int], memory: torch.Tensor, hosts: Sequence[int]) -> None:
        """Copy KV blocks to the rows `hosts` of `memory`."""
        buffer = self._next()
        bits = buffer.bits[: len(blocks)]

        def to_host() -> None:
            for start, end, host in runs(hosts):
                memory[host : host + end - start].copy_(bits[start:end], non_blocking=True)

        full = self._streams.compute(lambda: self._kv_cache.read_blocks(blocks, bits), buffer.free)
        buffer.free = self._streams.copy(to_host, full)

    def back(self, hosts: Sequence[int], memory: torch.Tensor, blocks: Sequence[int]) -> None:
        """Copy the rows `hosts` of `memory` to KV blocks."""
        buffer = self._next()
        bits = buffer.bits[: len(blocks)]

        def from_host() -> None:
            for start, end, host in runs(hosts):
                bits[start:end].copy_(memory[host : host + end - start], non_blocking=True)

        full = self._streams.copy(from_host, buffer.free)
        buffer.free = self._streams.compute(lambda: self._kv_cache.write_blocks(blocks, bits), full)

    def _next(self) -> _Buffer:
        """They take turns."""
        self._buffers.append(self._buffers.pop(0))
        return self._buffers[-1]


def runs(blocks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches of neighbouring ids: where each begins and ends in `blocks`, and its first id."""
    start = 0
    for index in range(1, len(blocks) + 1):
        if index == len(blocks) or blocks[index] != blocks[index - 1] + 1:
            yield start, index, blocks[start]
            start = index


def _nothing() -> None:
    return None
