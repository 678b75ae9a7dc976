"""Normalization, rotary embedding and gate, against the modules of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.rope import apply_rope, rope_cos_sin
from kernels.silu_and_mul import silu_and_mul

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(dtype: torch.dtype) -> None:
    x = torch.randn(5, 96).mul(30).to(dtype)
    reference = LlamaRMSNorm(96, eps=1e-5).to(dtype)
    reference.weight.data.normal_()
    before = x.clone()
    torch.testing.assert_close(rms_norm(x, reference.weight.data, 1e-5), reference(x).detach())
    assert torch.equal(x, before)


def test_rms_norm_of_values_whose_squares_overflow_half_precision() -> None:
    x = torch.full((1, 64), 1000.0, dtype=torch.float16)
    ones = torch.ones(64, dtype=torch.float16)
    torch.testing.assert_close(rms_norm(x, ones, 1e-5), torch.ones_like(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_adds_in_place_and_normalizes_the_sum(dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 3, 64).to(dtype)
    weight = torch.randn(64).to(dtype)
    total = residual + x
    normed = add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total)
    assert torch.equal(normed, rms_norm(total, weight, 1e-6))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope(dtype: torch.dtype) -> None:
    config = LlamaConfig(hidden_size=128, num_attention_heads=4, num_key_value_heads=2)
    positions = torch.tensor([0, 1, 7, 500, 8191])
    queries, keys = torch.randn(5, 4, 32).to(dtype), torch.randn(5, 2, 32).to(dtype)
    embedding = LlamaRotaryEmbedding(config)
    cos, sin = embedding(queries, positions[None])
    expected = apply_rotary_pos_emb(queries[None], keys[None], cos, sin, unsqueeze_dim=2)
    ours = rope_cos_sin(positions, embedding.inv_freq, dtype)
    assert torch.equal(apply_rope(queries, *ours), expected[0][0])
    assert torch.equal(apply_rope(keys, *ours), expected[1][0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul(dtype: torch.dtype) -> None:
    gate, up = torch.randn(2, 3, 40).to(dtype)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(silu_and_mul(torch.cat((gate, up), dim=-1)), expected)
