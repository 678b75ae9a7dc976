"""Packed matrices give the products of plain ones, and no second copy stays in memory."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional

from engine.models.linear import FusedLinear, NewParameter
from engine.models.weight import DenseWeight, PackedWeight, Weight, packed

pytestmark = pytest.mark.quick


def dense(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Weight:
    generator = torch.Generator().manual_seed(rows)
    values = torch.randn(rows, columns, generator=generator).to(dtype)
    return DenseWeight(nn.Parameter(values, requires_grad=False))


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (48, 32), (96, 33), (259, 32), (600, 576)])
@pytest.mark.parametrize("rows", [0, 1, 2, 17, 130])
@pytest.mark.parametrize("biased", [False, True])
@torch.inference_mode()
def test_products(shape: tuple[int, int], rows: int, biased: bool) -> None:
    plain = dense(*shape)
    bias = torch.randn(shape[0]) if biased else None
    x = torch.randn(rows, shape[1])
    weight = packed(plain)
    assert isinstance(weight, PackedWeight)
    expected = functional.linear(
        x.double(), plain.dense().double(), bias.double() if bias is not None else None
    )
    torch.testing.assert_close(
        weight.multiply(x, bias), expected.float(), rtol=1e-5, atol=1e-5 * shape[1] ** 0.5
    )


def test_the_numbers_can_be_read_back() -> None:
    plain = dense(259, 33)
    assert torch.equal(packed(plain).dense(), plain.dense())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_stay_as_they_are(dtype: torch.dtype) -> None:
    plain = dense(8, 8, dtype)
    assert packed(plain) is plain


def test_a_build_without_onednn_multiplies_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.ops.mkldnn", object())
    plain = dense(8, 8)
    assert packed(plain) is plain


def test_a_fused_layer_keeps_its_parts_and_frees_its_plain_matrix() -> None:
    new = NewParameter(torch.float32, torch.device("cpu"))
    layer = FusedLinear(32, {"a": 48, "b": 16}, True, new)
    before = {name: tensor.normal_().clone() for name, tensor in layer.checkpoint_tensors()}
    storage = weakref.ref(layer.weight)
    x = torch.randn(5, 32)
    expected = functional.linear(x, layer.weight.dense(), layer.bias)
    layer.pack()
    gc.collect()
    assert storage() is None
    torch.testing.assert_close(layer(x), expected)
    after = dict(layer.checkpoint_tensors())
    assert list(after) == ["a.weight", "b.weight", "a.bias", "b.bias"]
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
