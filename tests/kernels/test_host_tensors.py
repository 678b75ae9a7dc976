"""Lists of the host become tensors."""

from __future__ import annotations

import pytest
import torch

from kernels.host_tensors import floats, integers

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "values", [[], [0], [-1, 3, 2**31 - 1], range(5), (7, 8), [(1, 2), (3, 4)]]
)
def test_integers_are_those_of_torch(values, dtype):
    found = integers(values, "cpu", dtype)
    assert torch.equal(found, torch.tensor(list(values), dtype=dtype))
    assert found.dtype is dtype


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_number_that_does_not_fit_is_refused(dtype):
    with pytest.raises(OverflowError):
        integers([2 ** (torch.iinfo(dtype).bits - 1)], "cpu", dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_keep_what_their_dtype_can_hold(dtype):
    values = [0.1, -2.5, float("inf")]
    assert torch.equal(floats(values, "cpu", dtype), torch.tensor(values, dtype=dtype))
