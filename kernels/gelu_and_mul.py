"""The gated activation of MLPs with a GELU (GEGLU, Shazeer, 2020, arXiv:2002.05202).

GELU: Hendrycks and Gimpel, 2016, arXiv:1606.08415, which has the approximation by tanh, too.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from kernels.gpu.library import find as find_gpu


def gelu_and_mul(gate_up: torch.Tensor, by_tanh: bool) -> torch.Tensor:
    """`gelu(gate) * up`.

    Args:
        gate_up: [..., 2 * intermediate_size], the gate first.
        by_tanh: the approximation, not the function.

    Returns:
        [..., intermediate_size], a new tensor.
    """
    on_gpu = find_gpu("gelu_and_mul", gate_up.device)
    if on_gpu is not None:
        return on_gpu(gate_up, by_tanh)
    return gelu_and_mul_reference(gate_up, by_tanh)


def batch_invariant_gelu_and_mul(gate_up: torch.Tensor, by_tanh: bool) -> torch.Tensor:
    """The same of [rows, 2 * intermediate_size], each row with bits that no other row moves.

    Row by row, as torch has several ways to compute a GELU, and the shape decides which it takes.
    """
    activated = gate_up.new_empty(len(gate_up), gate_up.shape[-1] // 2)
    for row, out in zip(torch.split(gate_up, 1), torch.split(activated, 1), strict=True):
        out.copy_(gelu_and_mul_reference(row, by_tanh))
    return activated


def gelu_and_mul_reference(gate_up: torch.Tensor, by_tanh: bool) -> torch.Tensor:
    """The specification of `gelu_and_mul`, of any device and dtype."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh" if by_tanh else "none").mul_(up)
