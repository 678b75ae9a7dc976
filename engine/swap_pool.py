"""The swap space's memory: KV blocks of preempted sequences, on the host."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import torch

from engine.blocks import BlockCopy
from engine.config import GIB, EngineConfig
from engine.copy_streams import CopyStreams, DeviceStreams
from engine.kv_cache import KVCache
from engine.memory import size_swap_space
from engine.staged_copies import StagedCopies, runs
from engine.swap_cost import SwapCost

log = logging.getLogger("pagemill.engine")

# Bytes that go through memory of the device at once.
_STAGED_BYTES = 32 << 20
# Blocks of the measurement, and how often it is made.
_SAMPLE_BLOCKS, _SAMPLE_ROUNDS = 8, 3


class SwapPool:
    """Host blocks for what the KV cache has to give up.

    All layers of a host block lie together, so that neighbouring ones travel in one piece. The
    memory is taken when the first block is swapped out: page-locked for a GPU, whose copies
    then need no detour; on a CPU the system gives each page as it is first written to.

    Args:
        streams: of the device, where it computes while blocks are copied; None for those of a
            GPU, and for none on a CPU.

    Attributes:
        num_blocks: its size; 0 for none.
    """

    def __init__(
        self, kv_cache: KVCache, num_blocks: int, streams: CopyStreams | None = None
    ) -> None:
        self.num_blocks = num_blocks
        self._kv_cache = kv_cache
        self._memory: torch.Tensor | None = None
        self._group = max(1, _STAGED_BYTES // kv_cache.block_bytes)
        if streams is None and kv_cache.device.type == "cuda" and num_blocks:
            streams = DeviceStreams(kv_cache.device)
        self._copies: StagedCopies | _DirectCopies = _DirectCopies(kv_cache)
        if streams is not None:
            # Takes its memory now: what brings sequences here is that memory runs out.
            self._copies = StagedCopies(kv_cache, min(self._group, num_blocks), streams)

    def swap_out(self, copies: Sequence[BlockCopy]) -> None:
        """Copy KV blocks to host blocks, in the order of the device's work."""
        if not copies:
            return
        memory = self._allocated()
        for group in self._groups(copies):
            blocks, hosts = [copy.source for copy in group], [copy.target for copy in group]
            self._copies.out(blocks, memory, hosts)

    def swap_in(self, copies: Sequence[BlockCopy]) -> None:
        """Copy host blocks to KV blocks, in the order of the device's work."""
        memory = self._allocated()
        for group in self._groups(copies):
            hosts, blocks = [copy.source for copy in group], [copy.target for copy in group]
            self._copies.back(hosts, memory, blocks)

    def measure(self) -> float:
        """Seconds that one block takes to the host and back, when nothing else runs.

        Copies the first blocks of the KV cache, which keep what they hold, in a small pool.
        """
        count = min(_SAMPLE_BLOCKS, self._kv_cache.num_blocks)
        sample = SwapPool(self._kv_cache, count)
        copies = [BlockCopy(block, block) for block in range(count)]
        taken = []
        for _ in range(1 + _SAMPLE_ROUNDS):  # the first one allocates
            began = self._now()
            sample.swap_out(copies)
            sample.swap_in(copies)
            taken.append(self._now() - began)
        return min(taken[1:]) / count

    def _now(self) -> float:
        if self._kv_cache.device.type == "cuda":
            torch.cuda.synchronize(self._kv_cache.device)
        return time.perf_counter()

    def _allocated(self) -> torch.Tensor:
        if self._memory is None:
            like = self._kv_cache.empty_blocks(0)
            shape = self.num_blocks, *like.shape[1:]
            self._memory = _host_memory(shape, like.dtype, pinned=like.is_cuda)
        return self._memory

    def _groups(self, copies: Sequence[BlockCopy]) -> Iterator[Sequence[BlockCopy]]:
        for start in range(0, len(copies), self._group):
            yield copies[start : start + self._group]


class _DirectCopies:
    """`StagedCopies` of a CPU, where nothing else is done meanwhile."""

    def __init__(self, kv_cache: KVCache) -> None:
        self._kv_cache = kv_cache

    def out(self, blocks: Sequence[int], memory: torch.Tensor, hosts: Sequence[int]) -> None:
        staged = self._kv_cache.read_blocks(blocks)
        for start, end, host in runs(hosts):
            memory[host : host + end - start].copy_(staged[start:end])

    def back(self, hosts: Sequence[int], memory: torch.Tensor, blocks: Sequence[int]) -> None:
        staged = self._kv_cache.empty_blocks(len(blocks))
        for start, end, host in runs(hosts):
            staged[start:end].copy_(memory[host : host + end - start])
        self._kv_cache.write_blocks(blocks, staged)


def open_swap_pool(config: EngineConfig, kv_cache: KVCache) -> tuple[SwapPool, SwapCost]:
    """A pool within the configured size, and what copying costs here; logs both."""
    pool = SwapPool(kv_cache, size_swap_space(config, kv_cache.block_bytes))
    if not pool.num_blocks:
        return pool, SwapCost()
    seconds, size = pool.measure(), pool.num_blocks * kv_cache.block_bytes
    log.info(
        "swap space: up to %s blocks, %.2f GiB of host memory; a block goes there and back in "
        "%.3f ms", f"{pool.num_blocks:,}", size / GIB, 1000 * seconds,
        extra={"swap_blocks": pool.num_blocks, "bytes": size, "block_seconds": seconds},
    )  # fmt: skip
    return pool, SwapCost(seconds)


def _host_memory(shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool) -> torch.Tensor:
    if pinned:
        try:
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        except RuntimeError as error:
            log.warning(
                "the swap space cannot be page-locked (%s): it is slower now. Lower --swap-space, "
                "or raise the limit of locked memory", error,
            )  # fmt: skip
    return torch.empty(shape, dtype=dtype)
