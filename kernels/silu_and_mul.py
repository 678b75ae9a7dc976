"""The gated activation of Llama's MLP (SwiGLU, Shazeer, 2020, arXiv:2002.05202)."""

from __future__ import annotations

import torch
from torch.nn import functional


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up`.

    Args:
        gate_up: [..., 2 * intermediate_size], the gate first.

    Returns:
        [..., intermediate_size], a new tensor.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
