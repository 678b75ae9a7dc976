"""Blocks that go to host memory and back are bit by bit what they were."""

from __future__ import annotations

import logging

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import memory, swap_pool
from engine.blocks import BlockCopy
from engine.config import EngineConfig
from engine.kv_cache import KVCache
from engine.kv_format import KVFormat
from engine.staged_copies import runs
from engine.swap_pool import SwapPool, open_swap_pool
from kernels.kv_layout import KVStorage
from kernels.kv_quantization import QUANTIZED

pytestmark = pytest.mark.quick

NUM_BLOCKS, LAYERS = 12, 3


def cache(
    dtype: torch.dtype = torch.float32, *, by_head: bool = False, num_blocks: int = NUM_BLOCKS
) -> KVCache:
    """One whose numbers are all different from block to block."""
    storage = KVStorage.allocate(LAYERS, num_blocks, 4, 2, 8, dtype=dtype, by_head=by_head)
    for part in storage.parts():
        part.copy_(torch.randint(-(2**31), 2**31, part.shape, dtype=torch.int32))
    return KVCache(num_blocks, 4, KVFormat(dtype, by_head), storage)


def block(kv: KVCache, number: int) -> list[torch.Tensor]:
    """All its bits."""
    return [part[number].clone() for part in kv.storage.parts()]


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    sources=st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True, min_size=1),
    hosts=st.permutations(range(20)),
    targets=st.permutations(range(NUM_BLOCKS)),
    staged=st.integers(1, 5),
    by_head=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, *QUANTIZED]),
)
def test_what_comes_back_is_what_went(
    sources: list[int],
    hosts: list[int],
    targets: list[int],
    staged: int,
    by_head: bool,
    dtype: torch.dtype,
) -> None:
    kv = cache(dtype, by_head=by_head)
    pool = SwapPool(kv, 20)
    pool._group = staged
    before = [block(kv, number) for number in range(NUM_BLOCKS)]
    pool.swap_out([BlockCopy(s, h) for s, h in zip(sources, hosts, strict=False)])
    assert all(equal(block(kv, n), before[n]) for n in range(NUM_BLOCKS)), "it only reads"
    for part in kv.storage.parts():  # others were given the blocks, and wrote to them
        part.fill_(-1)
    count = len(sources)
    pool.swap_in([BlockCopy(h, t) for h, t in zip(hosts[:count], targets, strict=False)])
    for source, target in zip(sources, targets, strict=False):
        assert equal(block(kv, target), before[source])
    for other in targets[count:]:
        assert all((part == -1).all() for part in block(kv, other)), "nothing else is written"


def test_a_group_is_as_many_blocks_as_the_bound_holds() -> None:
    kv = cache()
    assert kv.block_bytes == LAYERS * 2 * 4 * 2 * 8 * 4
    assert cache(torch.int8).block_bytes == LAYERS * 2 * 4 * 2 * (8 + 4), "and its scales"
    assert SwapPool(kv, 1)._group == (32 << 20) // kv.block_bytes


@pytest.mark.parametrize(
    ("ids", "expected"),
    [([4], [(0, 1, 4)]), ([4, 5, 6], [(0, 3, 4)]), ([6, 5], [(0, 1, 6), (1, 2, 5)]),
     ([0, 1, 7, 8, 3], [(0, 2, 0), (2, 4, 7), (4, 5, 3)])],
)  # fmt: skip
def test_neighbouring_blocks_travel_together(
    ids: list[int], expected: list[tuple[int, int, int]]
) -> None:
    assert list(runs(ids)) == expected


def test_memory_is_taken_only_when_something_is_swapped_out_and_only_as_far_as_it_is() -> None:
    kv = cache()
    pool = SwapPool(kv, (1 << 30) // kv.block_bytes)
    process = psutil.Process()
    before = process.memory_info().rss
    assert pool._memory is None
    pool.swap_out([BlockCopy(number, number) for number in range(NUM_BLOCKS)])
    grown = process.memory_info().rss - before
    assert pool._memory is not None
    assert pool._memory.nbytes > 1_000_000_000
    assert grown < 100_000_000, "a GiB was promised, and almost nothing of it is needed yet"


def test_what_a_copy_costs_is_measured_and_changes_nothing() -> None:
    kv = cache()
    before = [block(kv, number) for number in range(NUM_BLOCKS)]
    pool = SwapPool(kv, 5)
    assert 0 < pool.measure() < 10
    assert pool._memory is None
    assert all(equal(block(kv, n), before[n]) for n in range(NUM_BLOCKS))


def test_a_larger_block_takes_longer() -> None:
    small = cache()
    wide = KVStorage.allocate(2, 8, 32, 64, 128, dtype=torch.float32)
    large = KVCache(8, 32, KVFormat(torch.float32), wide)  # 4 MiB a block
    assert SwapPool(large, 1).measure() > SwapPool(small, 1).measure()


def open_pool(
    monkeypatch: pytest.MonkeyPatch, free: int, swap_space: float
) -> tuple[KVCache, SwapPool]:
    monkeypatch.setattr(memory, "free_host_bytes", lambda: free)
    kv = cache()
    pool, _ = open_swap_pool(EngineConfig("m", swap_space=swap_space), kv)
    return kv, pool


@pytest.mark.parametrize(
    ("free", "swap_space", "expected"),
    [(1 << 40, 4.0, 4 << 30), (1 << 40, 0.5, 1 << 29), (1 << 30, 4.0, 1 << 28), (1 << 40, 0, 0),
     (100, 4.0, 0)],
)  # fmt: skip
def test_its_size_is_what_is_wanted_but_at_most_a_quarter_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch, free: int, swap_space: float, expected: int
) -> None:
    kv, pool = open_pool(monkeypatch, free, swap_space)
    assert pool.num_blocks == expected // kv.block_bytes


def test_the_log_tells_its_size_and_what_copying_costs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pagemill.engine"):
        kv, pool = open_pool(monkeypatch, 1 << 40, 1.0)
    (record,) = caplog.records
    assert record.message.startswith(
        f"swap space: up to {pool.num_blocks:,} blocks, 1.00 GiB of host memory; a block goes"
    )
    assert vars(record)["bytes"] == pool.num_blocks * kv.block_bytes
    assert vars(record)["block_seconds"] > 0


def test_without_page_locked_memory_it_goes_on_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    empty = torch.empty

    def refuse(*shape: object, **options: object) -> torch.Tensor:
        if options.pop("pin_memory", False):
            raise RuntimeError("cudaHostAlloc failed")
        return empty(*shape, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", refuse)
    made = swap_pool._host_memory((2, 3), torch.float16, pinned=True)
    assert made.shape == (2, 3)
    assert "cannot be page-locked (cudaHostAlloc failed)" in caplog.text
