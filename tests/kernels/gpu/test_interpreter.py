"""The mended interpreter computes with narrow numbers as torch does, and so do the devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NARROW = (torch.bfloat16, torch.float16, E4M3, E5M2)
ROOT = Path(__file__).parents[3]


@triton.jit
def arithmetic_kernel(a, b, output, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    left, right = tl.load(a + places), tl.load(b + places)
    tl.store(output + places, left + right)
    tl.store(output + SIZE + places, left - right)
    tl.store(output + 2 * SIZE + places, left * right)
    tl.store(output + 3 * SIZE + places, tl.where(left < right, left, right))
    tl.store(output + 4 * SIZE + places, -left)


@triton.jit
def chosen_kernel(numbers, least, output, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    wanted = (places < SIZE - 1) & (tl.load(least).to(tl.int64) >= 0)
    tl.store(output + places, tl.load(numbers + places, mask=wanted, other=-1))


@triton.jit
def cast_kernel(source, output, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    tl.store(output + places, tl.load(source + places).to(output.dtype.element_ty))


@triton.jit
def dot_kernel(a, b, output, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    product = tl.dot(tl.load(a + places), tl.load(b + places), input_precision="ieee")
    tl.store(output + places, product)


@triton.jit
def reduce_kernel(source, sums, largest, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)
    values = tl.load(source + rows[:, None] * SIZE + tl.arange(0, SIZE)[None, :])
    tl.store(sums + rows, tl.sum(values, axis=1))
    tl.store(largest + rows, tl.max(values, axis=1))


def cast(source: Tensor, dtype: torch.dtype) -> Tensor:
    output = torch.zeros(source.numel(), dtype=dtype)
    cast_kernel[(1,)](source, output, SIZE=source.numel())
    return output


def edges() -> Tensor:
    """float32 that lie on, between and halfway between narrow numbers, small and large."""
    torch.manual_seed(0)
    scales = torch.tensor([2.0**exponent for exponent in (-20, -9, -6, -1, 0, 3, 8, 15, 20)])
    random = torch.randn(54, 9) * scales
    halves = (1 + torch.arange(16) / 16 + 1 / 32)[:, None] * scales[None, :4]
    special = [0.0, -0.0, 448.0, 464.0, 465.0, -500.0, 57344.0, 61440.0, 1e9, float("inf")]
    values = torch.cat([random.flatten(), halves.flatten(), torch.tensor(special)])
    return torch.cat([values, torch.zeros(1024 - values.numel())])


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_arithmetic_rounds_to_nearest_even(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    a, b = torch.randn(64).to(dtype), torch.randn(64).to(dtype)
    output = torch.zeros(5, 64, dtype=dtype)

    arithmetic_kernel[(1,)](a, b, output, SIZE=64)

    expected = torch.stack([a + b, a - b, a * b, torch.minimum(a, b), -a])
    assert torch.equal(output, expected)


@pytest.mark.quick
@pytest.mark.parametrize("dtype", NARROW)
def test_float32_is_rounded_to_nearest_even(dtype: torch.dtype) -> None:
    values = edges()
    if dtype.itemsize == 1:  # the devices saturate; torch does since 2.13
        most = torch.finfo(dtype).max
        expected = values.clamp(-most, most).to(dtype)
    else:
        values = values.clamp(-65504, 65504)
        expected = values.to(dtype)

    found = cast(values, dtype)

    integers = torch.uint8 if dtype.itemsize == 1 else torch.int16
    assert torch.equal(found.view(integers), expected.view(integers))


@pytest.mark.quick
@pytest.mark.parametrize("dtype", NARROW)
def test_a_nan_stays_one(dtype: torch.dtype) -> None:
    assert cast(torch.full((16,), float("nan")), dtype).float().isnan().all()


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_every_code_of_fp8_is_read(dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    finite = codes.float()
    torch.testing.assert_close(cast(codes, torch.float32), finite, rtol=0, atol=0, equal_nan=True)
    again = cast(finite, dtype).float()
    kept = finite.isfinite()
    assert torch.equal(again[kept], finite[kept])


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [torch.float32, *NARROW])
def test_a_product_of_matrices_is_summed_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    a, b = torch.randn(16, 16).to(dtype), torch.randn(16, 16).to(dtype)
    output = torch.zeros(16, 16)

    dot_kernel[(1,)](a, b, output, SIZE=16)

    torch.testing.assert_close(output, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.quick
@pytest.mark.parametrize("least", [0, -1])
def test_a_condition_on_one_number_is_broadcast(least: int) -> None:
    output = torch.zeros(4)

    chosen_kernel[(1,)](torch.ones(4), torch.tensor([least]), output, SIZE=4)

    assert output.tolist() == ([1, 1, 1, -1] if least == 0 else [-1, -1, -1, -1])


@pytest.mark.quick
def test_sums_and_largest_of_bfloat16() -> None:
    torch.manual_seed(3)
    source = torch.randn(16, 16).to(torch.bfloat16)
    sums, largest = torch.zeros(2, 16, dtype=torch.bfloat16)

    reduce_kernel[(1,)](source, sums, largest, SIZE=16)

    assert torch.equal(sums, source.float().sum(1).to(torch.bfloat16))
    assert torch.equal(largest, source.amax(1))


def test_the_interpreter_as_it_comes_is_wrong() -> None:
    """The day that it is not, the mending can go."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.gpu._stock_interpreter"],
        cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert float(done.stdout) != 3.0
