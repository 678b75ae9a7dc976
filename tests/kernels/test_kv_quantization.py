"""What 8 bits make of keys and values: how far off, and what happens at the ends of the range."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.kv_quantization import QUANTIZED, dequantize, quantize, smallest_peak

pytestmark = pytest.mark.quick

# The largest error of a number: of itself, and of the largest of its head. Floats lose half a
# step of their fraction; below their normal range, and in int8 everywhere, steps are equal.
BOUNDS = {
    torch.int8: (0.0, 0.5 / 127),
    torch.float8_e4m3fn: (2.0**-4, 2.0**-10 / 448),
    torch.float8_e5m2: (2.0**-3, 2.0**-17 / 57344),
}
# Next to the largest of float32 a product may round to an infinity.
finite = st.floats(-(2.0**127), 2.0**127, width=32)
anything = finite | st.sampled_from([math.nan, math.inf, -math.inf])


@pytest.mark.parametrize("dtype", QUANTIZED)
@given(head=st.lists(finite, min_size=1, max_size=8))
def test_an_error_is_a_share_of_the_number_or_of_the_largest(
    dtype: torch.dtype, head: list[float]
) -> None:
    x = torch.tensor(head)
    stored, scales = quantize(x, dtype)
    found = dequantize(stored, scales).double()
    peak, (of_itself, of_largest) = x.double().abs().max(), BOUNDS[dtype]
    assert scales.isfinite().all()
    assert (scales > 0).all()
    bound = of_itself * x.double().abs() + of_largest * peak
    # The division and the product are rounded too.
    bound = bound * (1 + 1e-5) + 1e-6 * x.double().abs() + smallest_peak(QUANTIZED[dtype])
    assert ((found - x.double()).abs() <= bound).all()
    if peak >= smallest_peak(QUANTIZED[dtype]):
        largest = x.abs().argmax()
        assert found[largest] == pytest.approx(x[largest].item(), rel=1e-6)


@pytest.mark.parametrize("dtype", QUANTIZED)
@given(heads=st.lists(st.lists(anything, min_size=4, max_size=4), min_size=2, max_size=5))
def test_a_head_has_the_bits_that_it_has_alone(
    dtype: torch.dtype, heads: list[list[float]]
) -> None:
    x = torch.tensor(heads)
    stored, scales = (part.view(torch.uint8) for part in quantize(x, dtype))
    for i, head in enumerate(x):
        alone = [part.view(torch.uint8) for part in quantize(head, dtype)]
        assert torch.equal(alone[0], stored[i])
        assert torch.equal(alone[1], scales[i])


@pytest.mark.parametrize("dtype", QUANTIZED)
@given(head=st.lists(anything, min_size=1, max_size=8))
def test_a_head_that_is_not_finite_is_nan(dtype: torch.dtype, head: list[float]) -> None:
    x = torch.tensor(head)
    found = dequantize(*quantize(x, dtype))
    assert bool(found.isfinite().all()) is bool(x.isfinite().all())
    if not x.isfinite().all():
        assert found.isnan().all()


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_zeros_stay_zeros(dtype: torch.dtype) -> None:
    stored, scales = quantize(torch.zeros(3, 2, 8, dtype=torch.bfloat16), dtype)
    assert scales.shape == (3, 2, 1)
    assert (scales == 1).all()
    assert (stored.float() == 0).all()
