"""RMSNorm of the GPU against its reference, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from kernels.gpu.rms_norm import add_rms_norm, rms_norm
from kernels.rms_norm import add_rms_norm_reference, rms_norm_reference

pytestmark = pytest.mark.quick

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ((1, 64), (3, 576), (5, 4, 96), (2, 1), (7, 1000))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_its_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape).to(dtype) * 3, torch.randn(shape[-1]).to(dtype)

    torch.testing.assert_close(rms_norm(x, weight, 1e-6), rms_norm_reference(x, weight, 1e-6))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_adding_equals_its_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, residual = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight, ours = torch.randn(shape[-1]).to(dtype), residual.clone()

    output = add_rms_norm(x, ours, weight, 1e-5)

    expected = add_rms_norm_reference(x, residual, weight, 1e-5)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(ours, residual, rtol=0, atol=0)


def test_a_row_alone_has_the_bits_that_it_has_among_others() -> None:
    torch.manual_seed(2)
    x, weight = torch.randn(9, 200), torch.randn(200)

    together = rms_norm(x, weight, 1e-6)

    for i in range(9):
        assert torch.equal(rms_norm(x[i : i + 1], weight, 1e-6), together[i : i + 1])
