"""Logits of tokens that are not allowed become the lowest there is; all others stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.token_mask import mask_logits, unpack_on_device, unpack_on_host

pytestmark = pytest.mark.quick


@given(st.data(), st.integers(1, 100), st.integers(1, 4))
def test_only_what_is_allowed_stays(data: st.DataObject, vocab_size: int, count: int) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    rows = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True).map(sorted))
    spare = data.draw(st.integers(0, 40))
    width = 32 * (vocab_size // 32 + 1 + spare // 32)
    bits = np.array(
        [data.draw(st.lists(st.booleans(), min_size=width, max_size=width)) for _ in rows]
    )
    packed = np.packbits(bits, axis=-1, bitorder="little").view(np.int32)
    before = torch.randn(count, vocab_size).to(dtype)
    logits = before.clone()
    mask_logits(logits, rows, packed)
    expected = before.clone()
    for row, allowed in zip(rows, bits, strict=True):
        for token in range(vocab_size):
            if not allowed[token]:
                expected[row, token] = torch.finfo(dtype).min
    assert torch.equal(logits, expected)
    assert logits.isfinite().all()


def test_a_device_unpacks_as_the_host_does() -> None:
    packed = np.random.default_rng(0).integers(-(2**31), 2**31, (5, 7), dtype=np.int32)
    host, device = unpack_on_host(packed), unpack_on_device(torch.from_numpy(packed))
    assert torch.equal(host.int(), device)
