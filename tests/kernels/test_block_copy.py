"""Whole blocks are copied as they are, in either layout and every number format."""

from __future__ import annotations

import pytest
import torch

from kernels.block_copy import copy_blocks, read_blocks, write_blocks
from kernels.kv_layout import KVStorage
from kernels.kv_quantization import QUANTIZED

pytestmark = pytest.mark.quick

BLOCKS = 9


def storage(dtype: torch.dtype, *, by_head: bool = False) -> KVStorage:
    torch.manual_seed(0)
    made = KVStorage.allocate(2, BLOCKS, 8, 3, 5, dtype=dtype, by_head=by_head)
    for part in made.parts():
        part.copy_(torch.randint(-(2**31), 2**31, part.shape, dtype=torch.int32))  # NaN too
    return made


def block(held: KVStorage, number: int) -> torch.Tensor:
    return torch.cat([part[number] for part in held.parts()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, *QUANTIZED])
@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_targets_get_what_the_sources_held_before(
    dtype: torch.dtype, by_head: bool, apart: bool
) -> None:
    held = storage(dtype, by_head=by_head)
    before = [block(held, number) for number in range(BLOCKS)]
    # Block 1 is read twice; without `apart`, block 2 is a source and a target.
    copies = {7: 3, 2: 1, 0: 1, 8: 4} if apart else {7: 2, 2: 1, 0: 1, 8: 4}
    sources, targets = torch.tensor(list(copies.values())), torch.tensor(list(copies))
    copy_blocks(held, sources, targets, apart=apart)
    for number in range(BLOCKS):
        assert torch.equal(block(held, number), before[copies.get(number, number)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_what_is_read_can_be_written_elsewhere(dtype: torch.dtype) -> None:
    held = storage(dtype)
    before = [block(held, number) for number in range(BLOCKS)]
    bits = read_blocks(held, torch.tensor([5, 0]))
    assert torch.equal(bits, torch.stack([before[5], before[0]]))
    write_blocks(held, torch.tensor([0, 3]), bits)
    moved = {0: 5, 3: 0}
    for number in range(BLOCKS):
        assert torch.equal(block(held, number), before[moved.get(number, number)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, *QUANTIZED])
@pytest.mark.parametrize("by_head", [False, True])
def test_layers_are_views_that_cover_all_of_the_storage(dtype: torch.dtype, by_head: bool) -> None:
    held = KVStorage.allocate(3, 4, 8, 2, 6, dtype=dtype, by_head=by_head)
    for part in held.parts():
        part.fill_(0)
    for number, layer in enumerate(held.layers):
        assert (layer.num_blocks, layer.block_size) == (4, 8)
        assert (layer.num_kv_heads, layer.head_dim) == (2, 6)
        stored = (layer.keys, layer.values, layer.key_scales, layer.value_scales)
        for kind, part in enumerate(part for part in stored if part is not None):
            part.view(torch.uint8)[2] = 1 + 4 * number + kind
    numbers, scales = held.numbers.view(torch.uint8), held.scales
    assert (numbers[:, :, [0, 1, 3]] == 0).all()
    for number in range(3):
        for kind in range(2):
            assert (numbers[number, kind, 2] == 1 + 4 * number + kind).all()
            if scales is not None:
                bits = scales[number, kind, 2].view(torch.uint8)
                assert (bits == 3 + 4 * number + kind).all()
    assert (scales is not None) is (dtype in QUANTIZED)


def test_numbers_that_do_not_fill_whole_words_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fill whole words"):
        KVStorage.allocate(1, 2, 1, 1, 3, dtype=torch.int8)
