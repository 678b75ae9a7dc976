"""The gated activation of Llama's MLP (SwiGLU, Shazeer, 2020, arXiv:2002.05202)."""

from __future__ import annotations

from ctypes import c_int64, c_void_p

import torch
from torch.nn import functional

from kernels.cpu.library import find
from kernels.gpu.library import find as find_gpu


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up`.

    Args:
        gate_up: [..., 2 * intermediate_size], the gate first.

    Returns:
        [..., intermediate_size], a new tensor.
    """
    on_gpu = find_gpu("silu_and_mul", gate_up.device)
    if on_gpu is not None:
        return on_gpu(gate_up)
    if gate_up.is_cpu and gate_up.dtype is torch.float32 and gate_up.is_contiguous():
        kernel = find("silu_and_mul", c_void_p, c_void_p, c_int64, c_int64)
        if kernel is not None:
            width = gate_up.shape[-1] // 2
            output = gate_up.new_empty((*gate_up.shape[:-1], width))
            rows = output.numel() // width
            kernel(gate_up.data_ptr(), output.data_ptr(), rows, width)
            return output
    return silu_and_mul_reference(gate_up)


def silu_and_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """The specification of `silu_and_mul`, of any device and dtype."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
