"""Blocks of all layers, copied as if at the same moment."""

from __future__ import annotations

import pytest
import torch

from engine.blocks import BlockCopy
from engine.kv_cache import KVCache
from engine.kv_format import KVFormat
from kernels.kv_layout import KVStorage
from tests.support.gpu_kernels import serving
from tests.support.triton_interpreter import mend

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("variant", ["none", "interpreter"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
@pytest.mark.parametrize(
    "copies", [{}, {0: 1}, {0: 1, 1: 0}, {0: 1, 1: 2, 2: 3}, {2: 2, 3: 0}, {3: 1, 2: 1}]
)
def test_a_block_may_be_a_source_and_a_target(
    copies: dict[int, int], dtype: torch.dtype, variant: str
) -> None:
    storage = KVStorage.allocate(2, 4, 8, 1, 4, dtype=dtype)
    for part in storage.parts():
        part.copy_(torch.randint(-(2**31), 2**31, part.shape, dtype=torch.int32))
    cache = KVCache(4, 8, KVFormat(dtype), storage)
    expected = [part[[copies.get(i, i) for i in range(4)]] for part in storage.parts()]
    mend()
    with serving(variant):
        cache.copy_blocks([BlockCopy(source, target) for target, source in copies.items()])
    for part, wanted in zip(storage.parts(), expected, strict=True):
        assert torch.equal(part, wanted)
