"""Whole blocks moved on the GPU, in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import block_copy as public
from kernels.gpu import block_copy
from kernels.kv_layout import KVStorage
from tests.support.gpu_kernels import serving

BLOCKS = 6
DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8)


@pytest.fixture(scope="module", autouse=True)
def served() -> Iterator[None]:
    """The public functions take the kernels."""
    with serving("interpreter"), pytest.MonkeyPatch.context() as patch:
        for name in ("copy_blocks_reference", "read_blocks_reference", "write_blocks_reference"):
            patch.setattr(public, name, None)
        yield


def storage(dtype: torch.dtype, head_dim: int = 12, *, by_head: bool = False) -> KVStorage:
    made = KVStorage.allocate(2, BLOCKS, 8, 1, head_dim, dtype=dtype, by_head=by_head)
    for part in made.parts():
        part.copy_(torch.randint(-(2**31), 2**31, part.shape, dtype=torch.int32))
    return made


def blocks(held: KVStorage) -> torch.Tensor:
    """[BLOCKS, words of a block]"""
    return torch.cat(list(held.parts()), dim=1)


@settings(max_examples=12, deadline=None)
@given(
    copies=st.dictionaries(st.integers(0, BLOCKS - 1), st.integers(0, BLOCKS - 1), max_size=4),
    dtype=st.sampled_from(DTYPES),
    by_head=st.booleans(),
)
def test_targets_get_what_the_sources_held_before(
    copies: dict[int, int], dtype: torch.dtype, by_head: bool
) -> None:
    held = storage(dtype, by_head=by_head)
    expected = blocks(held)[[copies.get(number, number) for number in range(BLOCKS)]]
    sources = torch.tensor(list(copies.values()), dtype=torch.int64)
    targets = torch.tensor(list(copies), dtype=torch.int64)
    apart = not set(copies) & set(copies.values())
    public.copy_blocks(held, sources, targets, apart=apart)
    assert torch.equal(blocks(held), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_of_several_pieces_leave_and_come_back(dtype: torch.dtype) -> None:
    held = storage(dtype, head_dim=2100 // dtype.itemsize)
    before = blocks(held)
    wider = torch.full((4, held.block_words), -1, dtype=torch.int32)
    bits = public.read_blocks(held, torch.tensor([4, 1, 0], dtype=torch.int32), out=wider[:3])
    assert torch.equal(bits, before[[4, 1, 0]])
    assert (wider[3] == -1).all()
    public.write_blocks(held, torch.tensor([1, 5, 4], dtype=torch.int32), bits)
    assert torch.equal(blocks(held), before[[0, 4, 2, 3, 0, 1]])


def test_negative_ids_are_padding() -> None:
    held = storage(torch.int8)
    before = blocks(held)
    here, nowhere = torch.tensor([2, -1]), torch.tensor([-1, 3])
    bits = torch.full((2, held.block_words), 7, dtype=torch.int32)
    block_copy.copy_blocks(held.numbers, held.scales, here, nowhere)
    block_copy.write_blocks(held.numbers, held.scales, torch.tensor([-1, -1]), bits)
    assert torch.equal(blocks(held), before)
    block_copy.read_blocks(held.numbers, held.scales, here, bits)
    assert torch.equal(bits[0], before[2])
    assert (bits[1] == 7).all()
