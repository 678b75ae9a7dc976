"""Gathers and activations of the GPU against their references, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from kernels.embedding import embed_reference, select_rows_reference
from kernels.gelu_and_mul import gelu_and_mul_reference
from kernels.gpu.embedding import gather_rows
from kernels.gpu.gated_activation import gelu_and_mul, silu_and_mul
from kernels.silu_and_mul import silu_and_mul_reference

pytestmark = pytest.mark.quick

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 96), (3, 4097)])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_gathered_rows_are_those_of_the_references(
    dtype: torch.dtype, rows: int, width: int, index: torch.dtype
) -> None:
    torch.manual_seed(0)
    matrix, chosen = torch.randn(rows, width).to(dtype), torch.randint(0, rows, (4,), dtype=index)

    gathered = gather_rows(matrix, chosen)

    assert torch.equal(gathered, embed_reference(chosen, matrix))
    assert torch.equal(gathered, select_rows_reference(matrix, chosen))


def test_padding_gives_zeros_whatever_is_in_memory() -> None:
    matrix = torch.full((3, 40), torch.nan)
    matrix[1] = 2.0

    gathered = gather_rows(matrix, torch.tensor([-1, 1, -7]))

    assert torch.equal(gathered, torch.tensor([[0.0], [2.0], [0.0]]).expand(3, 40))


def test_no_rows_are_gathered_where_none_are_asked_for() -> None:
    assert gather_rows(torch.randn(3, 8), torch.empty(0, dtype=torch.int64)).shape == (0, 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (4, 130), (2, 3, 96), (2, 8194)])
def test_silu_and_mul_equals_its_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    gate_up = (torch.randn(shape) * 6).to(dtype)
    gate_up.view(-1)[0] = -300.0  # whose exponential is infinite

    torch.testing.assert_close(silu_and_mul(gate_up), silu_and_mul_reference(gate_up))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (2, 3, 96), (2, 8194)])
@pytest.mark.parametrize("by_tanh", [False, True])
def test_gelu_and_mul_equals_its_reference(
    shape: tuple[int, ...], dtype: torch.dtype, by_tanh: bool
) -> None:
    torch.manual_seed(3)
    gate_up = (torch.randn(shape) * 4).to(dtype)
    gate_up.view(-1)[0] = -300.0

    found, expected = gelu_and_mul(gate_up, by_tanh), gelu_and_mul_reference(gate_up, by_tanh)

    # Two roundings may each go the other way.
    rtol = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-5)


def test_a_row_alone_has_the_bits_that_it_has_among_others() -> None:
    torch.manual_seed(2)
    x = torch.randn(6, 200)

    together = silu_and_mul(x)

    for i in range(6):
        assert torch.equal(silu_and_mul(x[i : i + 1]), together[i : i + 1])
