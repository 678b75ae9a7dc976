"""Rules of logits with the vocabularies of Llama-3-8B and Qwen3-0.6B."""

from __future__ import annotations

import torch

from kernels.gpu.logit_rules import add_token_bias, apply_penalties, mask_logits
from tests.kernels.gpu.aot.case import Case

VOCABULARY = 128_256


def _new(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _scores(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return _new(rows, VOCABULARY, dtype=dtype)


def _penalties() -> object:
    rules = (_new(64, 1, dtype=torch.float32) for _ in range(3))
    in_prompt, generated = _scores(128, torch.bool), _scores(128, torch.int32)
    return apply_penalties(_scores(64), _new(64), in_prompt, generated, _new(64), *rules)


def _mask() -> object:
    logits = _new(64, 151_936, dtype=torch.bfloat16)
    return mask_logits(logits, _new(64), _new(64, 151_936 // 32, dtype=torch.int32))


CASES = (
    Case("apply_penalties 128256", _penalties, pinned=True),
    Case(
        "add_token_bias 128256",
        lambda: add_token_bias(_scores(64), _new(64), _scores(128), _new(64)),
        pinned=True,
    ),
    Case("mask_logits bf16 151936", _mask, pinned=True),
)
