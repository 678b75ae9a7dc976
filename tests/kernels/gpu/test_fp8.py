"""Rounding to fp8 in integer arithmetic against torch's own."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from kernels.gpu.fp8 import encode_fp8

FORMATS = ((torch.float8_e4m3fn, 3, 7), (torch.float8_e5m2, 2, 15))


@triton.jit
def encode_kernel(x, codes, BLOCK: tl.constexpr, MANTISSA: tl.constexpr, BIAS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(codes + i, encode_fp8(tl.load(x + i), MANTISSA, BIAS))


@pytest.mark.parametrize(("dtype", "mantissa", "bias"), FORMATS)
def test_every_number_its_neighbours_and_the_middles_between_them(
    dtype: torch.dtype, mantissa: int, bias: int
) -> None:
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    numbers = numbers[numbers.isfinite()].sort().values
    middles = (numbers[1:] + numbers[:-1]) / 2
    exact = torch.cat([numbers, middles, torch.randn(1000), torch.randn(1000) * 1e-6])
    around = [exact, *(exact.nextafter(torch.tensor(end)) for end in (-torch.inf, torch.inf))]
    x = torch.cat([*around, torch.tensor([torch.nan, 1e-45, -1e-45])])
    x = torch.cat([x.clamp(numbers.min(), numbers.max()), torch.zeros(8192 - len(x))])
    codes = torch.empty(8192, dtype=torch.uint8)
    encode_kernel[(2,)](x, codes, BLOCK=4096, MANTISSA=mantissa, BIAS=bias)
    found = codes.view(dtype)
    expected = x.to(dtype)
    assert found.isnan().equal(expected.isnan())
    assert torch.equal(codes[~x.isnan()], expected.view(torch.uint8)[~x.isnan()])
