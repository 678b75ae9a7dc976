"""Gathers and activations of Llama-3-8B and Qwen3-0.6B."""

from __future__ import annotations

import torch

from kernels.gpu.embedding import gather_rows
from kernels.gpu.gated_activation import gelu_and_mul, silu_and_mul
from tests.kernels.gpu.aot.case import Case


def _new(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


CASES = (
    Case(
        "gather_rows bf16 4096",
        lambda: gather_rows(_new(128_256, 4096), _new(64, dtype=torch.int64)),
        pinned=True,
    ),
    Case(
        "gather_rows bf16 1024",
        lambda: gather_rows(_new(151_936, 1024), _new(64, dtype=torch.int64)),
    ),
    Case("silu_and_mul bf16 14336", lambda: silu_and_mul(_new(64, 2 * 14_336)), pinned=True),
    Case("gelu_and_mul bf16 14336", lambda: gelu_and_mul(_new(64, 2 * 14_336), False)),
    Case("gelu_and_mul by tanh bf16 14336", lambda: gelu_and_mul(_new(64, 2 * 14_336), True)),
    Case("silu_and_mul bf16 3072", lambda: silu_and_mul(_new(64, 2 * 3072))),
)
