"""Whole blocks are copied as they are, in either layout and every number format."""

from __future__ import annotations

import pytest
import torch

from kernels.block_copy import copy_blocks
from kernels.kv_layout import LayerKV

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("by_head", [False, True])
def test_targets_get_what_the_sources_held_before(by_head: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    kv = LayerKV.allocate(9, 8, 3, 5, dtype=dtype, by_head=by_head)
    for stored in (kv.keys, kv.values):
        stored.copy_(torch.randn(stored.shape))
        stored[4].fill_(torch.nan)
    before = [stored.clone() for stored in (kv.keys, kv.values)]
    # Block 2 is a source and a target; block 1 is read twice; block 4 was never written.
    copies = {7: 2, 2: 1, 0: 1, 8: 4}
    copy_blocks(kv, torch.tensor(list(copies.values())), torch.tensor(list(copies)))
    for stored, old in zip((kv.keys, kv.values), before, strict=True):
        for block in range(9):
            expected = old[copies.get(block, block)]
            torch.testing.assert_close(stored[block], expected, rtol=0, atol=0, equal_nan=True)
