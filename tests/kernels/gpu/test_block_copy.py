"""Whole blocks moved on the GPU against the references, in the interpreter."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import block_copy as public
from kernels.block_copy import (
    copy_blocks_reference,
    read_blocks_reference,
    write_blocks_reference,
)
from kernels.gpu.block_copy import copy_blocks, read_blocks, write_blocks
from kernels.kv_layout import KVStorage
from tests.support.gpu_kernels import serving

BLOCKS = 6
DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8)


def storages(
    dtype: torch.dtype, head_dim: int = 12, *, by_head: bool = False
) -> tuple[KVStorage, KVStorage]:
    """Two that hold the same bits, NaN included."""
    made = KVStorage.allocate(2, BLOCKS, 8, 1, head_dim, dtype=dtype, by_head=by_head)
    for part in made.parts():
        part.copy_(torch.randint(-(2**31), 2**31, part.shape, dtype=torch.int32))
    return made, copy.deepcopy(made)


def same(one: KVStorage, other: KVStorage) -> bool:
    return all(torch.equal(*parts) for parts in zip(one.parts(), other.parts(), strict=True))


@settings(max_examples=12, deadline=None)
@given(
    copies=st.dictionaries(st.integers(0, BLOCKS - 1), st.integers(0, BLOCKS - 1), max_size=4),
    dtype=st.sampled_from(DTYPES),
    by_head=st.booleans(),
)
def test_blocks_may_be_sources_and_targets_at_once(
    copies: dict[int, int], dtype: torch.dtype, by_head: bool
) -> None:
    ours, expected = storages(dtype, by_head=by_head)
    sources = torch.tensor(list(copies.values()), dtype=torch.int64)
    targets = torch.tensor(list(copies), dtype=torch.int64)
    copy_blocks_reference(expected, sources, targets)
    apart = set(copies).isdisjoint(copies.values())
    with serving("interpreter"), pytest.MonkeyPatch.context() as patch:
        for name in ("copy_blocks_reference", "read_blocks_reference", "write_blocks_reference"):
            patch.setattr(public, name, None)
        public.copy_blocks(ours, sources, targets, apart=apart)
    assert same(ours, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_of_several_pieces(dtype: torch.dtype) -> None:
    ours, expected = storages(dtype, head_dim=2100 // dtype.itemsize)
    wider = torch.full((4, ours.block_words), -1, dtype=torch.int32)
    bits, wanted = wider[:3], torch.empty_like(wider[:3])
    blocks, targets = torch.tensor([4, 1, 0]), torch.tensor([1, 5, 4])
    read_blocks(ours.numbers, ours.scales, blocks.int(), bits)
    read_blocks_reference(expected, blocks, wanted)
    assert torch.equal(bits, wanted)
    assert (wider[3] == -1).all()
    write_blocks(ours.numbers, ours.scales, targets.int(), bits)
    write_blocks_reference(expected, targets, wanted)
    assert same(ours, expected)
    copy_blocks(ours.numbers, ours.scales, targets[:1], blocks[2:])
    copy_blocks_reference(expected, targets[:1], blocks[2:])
    assert same(ours, expected)


def test_negative_ids_are_padding() -> None:
    ours, untouched = storages(torch.int8)
    here, nowhere = torch.tensor([2, -1]), torch.tensor([-1, 3])
    bits = torch.full((2, ours.block_words), 7, dtype=torch.int32)
    copy_blocks(ours.numbers, ours.scales, here, nowhere)
    write_blocks(ours.numbers, ours.scales, torch.tensor([-1, -1]), bits)
    assert same(ours, untouched)
    read_blocks(ours.numbers, ours.scales, here, bits)
    assert torch.equal(bits[0], torch.cat([part[2] for part in ours.parts()]))
    assert (bits[1] == 7).all()
