"""RMSNorm of the widths of Qwen3-0.6B (a head and a token) and of Llama-3-8B."""

from __future__ import annotations

import torch

from kernels.gpu.rms_norm import add_rms_norm, rms_norm
from tests.kernels.gpu.aot.case import Case


def _alone(rows: int, width: int) -> object:
    x = torch.empty(rows, width, dtype=torch.bfloat16, device="meta")
    return rms_norm(x, x.new_empty(width), 1e-6)


def _adding(rows: int, width: int) -> object:
    x = torch.empty(rows, width, dtype=torch.bfloat16, device="meta")
    return add_rms_norm(x, torch.empty_like(x), x.new_empty(width), 1e-6)


CASES = (
    Case("rms_norm bf16 1024", lambda: _alone(64, 1024)),
    Case("add_rms_norm bf16 4096", lambda: _adding(64, 4096), pinned=True),
)
