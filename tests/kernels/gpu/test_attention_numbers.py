"""Every code of the formats of 8 bits, as matrix products take it."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from kernels.gpu.attention_numbers import decode, product_types
from kernels.kv_quantization import QUANTIZED

pytestmark = pytest.mark.quick


@triton.jit
def decode_kernel(codes, numbers, FORMAT: tl.constexpr, TO: tl.constexpr):
    place = tl.arange(0, 256)
    tl.store(numbers + place, decode(tl.load(codes + place), FORMAT, TO))


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("queries", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kv", QUANTIZED)
def test_every_finite_code_is_its_number(kv, queries, arch):
    codes = torch.arange(256, dtype=torch.uint8)
    expected = codes.view(kv).float()
    finite = expected.isfinite()
    numbers_format, *types = product_types(queries, kv, arch)
    for to in types:
        found = torch.empty(256)

        decode_kernel[(1,)](codes, found, numbers_format, to)

        assert torch.equal(found[finite], expected[finite])


def test_keys_and_queries_of_different_dtypes_are_multiplied_in_float32():
    assert product_types(torch.bfloat16, torch.float16, 90)[1:] == (tl.float32, tl.float32)
    assert product_types(torch.bfloat16, torch.bfloat16, 90)[1:] == (tl.bfloat16, tl.bfloat16)
