"""Sampling and scoring with the vocabularies of Qwen3-0.6B and Llama-3-8B (processed)."""

from __future__ import annotations

import torch

from kernels.gpu.greedy import greedy_tokens
from kernels.gpu.logprobs import token_logprobs
from kernels.gpu.sampling import sample_rows
from tests.kernels.gpu.aot.case import Case


def _new(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _logits(rows: int, vocab_size: int) -> torch.Tensor:
    return _new(rows, vocab_size, dtype=torch.bfloat16)


def _sample(rows: int, vocab_size: int, dtype: torch.dtype, processed: bool) -> object:
    floats, counts = torch.float32, torch.int32
    return sample_rows(
        _new(rows), _new(rows, vocab_size, dtype=dtype), processed, *(_new(rows) for _ in range(4)),
        _new(rows, dtype=floats), _new(rows, dtype=counts), _new(rows, dtype=torch.float64),
        _new(rows, dtype=floats),
    )  # fmt: skip


CASES = (
    Case(
        "sample_rows bf16 151936",
        lambda: _sample(64, 151_936, torch.bfloat16, processed=False),
        pinned=True,
    ),
    Case(
        "sample_rows processed f32 128256",
        lambda: _sample(64, 128_256, torch.float32, processed=True),
    ),
    Case("greedy_tokens bf16 151936", lambda: greedy_tokens(_logits(64, 151_936)), pinned=True),
    Case(
        "token_logprobs bf16 151936 k 20",
        lambda: token_logprobs(_logits(64, 151_936), _new(64), 20),
        pinned=True,
    ),
    Case("token_logprobs bf16 128256", lambda: token_logprobs(_logits(64, 128_256), _new(64), 0)),
)
