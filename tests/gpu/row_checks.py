"""Norms, activations, embeddings and log probabilities against float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.gpu.items import Item, Surroundings
from kernels.embedding import embed, select_rows
from kernels.gelu_and_mul import gelu_and_mul
from kernels.logprobs import token_logprobs
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.silu_and_mul import silu_and_mul
from tests.gpu.near import near

GROUP = "rows"
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bf16": torch.bfloat16}
_SHAPES = ((1, 64), (3, 576), (65, 1000), (64, 4096), (8192, 1024), (7, 14336))


def items(dry: bool) -> list[Item]:
    found = []
    for name, dtype in _DTYPES.items():
        for rows, width in _SHAPES[:2] if dry else _SHAPES:
            for what, check in _CHECKS.items():
                run = partial(check, rows, width, dtype)
                found.append(Item(f"{what} {name}, {rows} x {width}", GROUP, run))
        for vocab in (300,) if dry else (300, 32000, 128256, 151936):
            for k in (0, 5, 20):
                run = partial(_logprobs, vocab, k, dtype)
                found.append(Item(f"logprobs {name}, {k} of {vocab}", GROUP, run))
    return found


def _random(given: Surroundings, *shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).to(given.device.torch_device)


def _normalized(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()


def _rms_norm(rows: int, width: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    x = _random(given, rows, width, dtype=dtype)
    weight = _random(given, width, dtype=dtype, seed=1)
    return near(rms_norm(x, weight, 1e-6), _normalized(x, weight))


def _add_rms_norm(rows: int, width: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    x, residual = (_random(given, rows, width, dtype=dtype, seed=i) for i in (0, 2))
    weight = _random(given, width, dtype=dtype, seed=1)
    total = residual + x
    found = add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total), "the residual does not hold the sum"
    return near(found, _normalized(total, weight))


def _silu_and_mul(rows: int, width: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    gate_up = _random(given, rows, 2 * width, dtype=dtype)
    gate, up = gate_up.double().chunk(2, dim=-1)
    return near(silu_and_mul(gate_up), functional.silu(gate) * up)


def _gelu_and_mul(rows: int, width: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    gate_up = _random(given, rows, 2 * width, dtype=dtype)
    gate, up = gate_up.double().chunk(2, dim=-1)
    exact = near(gelu_and_mul(gate_up, False), functional.gelu(gate) * up)
    near(gelu_and_mul(gate_up, True), functional.gelu(gate, approximate="tanh") * up)
    return exact


def _gathers(rows: int, width: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    matrix = _random(given, 300, width, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    chosen = torch.randint(0, 300, (rows,), generator=generator).to(matrix.device)
    right = matrix[chosen]
    assert torch.equal(embed(chosen, matrix), right), "embeddings are others"
    assert torch.equal(select_rows(matrix, chosen), right), "rows are others"
    return {}


_CHECKS = {
    "rms_norm": _rms_norm, "add_rms_norm": _add_rms_norm, "silu_and_mul": _silu_and_mul,
    "gelu_and_mul": _gelu_and_mul,
    "embed, select_rows": _gathers,
}  # fmt: skip


def _logprobs(vocab: int, k: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    logits = _random(given, 9, vocab, dtype=dtype) * 3
    logits[1, 7:40] = 20.0  # the likeliest ones tie
    tokens = torch.arange(9, device=logits.device) * 31
    found = token_logprobs(logits, tokens, k)
    right = logits.double().log_softmax(-1)
    ids = right.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    assert torch.equal(found.top_ids, ids), "other tokens are the likeliest"
    figures = near(found.chosen, right.gather(-1, tokens[:, None])[:, 0], 1e-5)
    if k:
        near(found.top, right.gather(-1, ids), 1e-5)
    return figures
