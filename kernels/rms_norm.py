"""Root mean square layer normalization (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

from __future__ import annotations

from ctypes import c_float, c_int64, c_void_p

import torch

from kernels.cpu.library import find
from kernels.gpu.library import find as find_gpu


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale each row of `x` to a root mean square of 1, then by `weight`.

    The mean and the scaling are computed in float32 and rounded to the dtype of `x` before
    the weight is applied, the order in which Llama checkpoints were trained.

    Args:
        x: [..., width].
        weight: [width], of the dtype of `x`.
        eps: added to the mean square.

    Returns:
        A new tensor of the shape and dtype of `x`.
    """
    on_gpu = find_gpu("rms_norm", x.device)
    if on_gpu is not None:
        return on_gpu(x, weight, eps)
    if _fits(x, weight):
        kernel = find("rms_norm", c_void_p, c_void_p, c_float, c_void_p, c_int64, c_int64)
        if kernel is not None:
            output, width = torch.empty_like(x), weight.shape[0]
            rows = x.numel() // width
            kernel(x.data_ptr(), weight.data_ptr(), eps, output.data_ptr(), rows, width)
            return output
    return rms_norm_reference(x, weight, eps)


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The specification of `rms_norm`, of any device and dtype."""
    wide = x.float()
    # The vector norm reads the row once; squaring it first would write a copy.
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    mean_square = norm.square().div_(x.shape[-1])
    return wide.mul(mean_square.add_(eps).rsqrt_()).to(x.dtype).mul_(weight)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Add `x` to `residual` in place, then normalize the sum.

    Args:
        x: [..., hidden_size], what a sublayer gave.
        residual: the same shape and dtype; holds the sum afterwards.
        weight: [hidden_size].
        eps: added to the mean square.

    Returns:
        `rms_norm(residual + x)`, a new tensor.
    """
    on_gpu = find_gpu("add_rms_norm", x.device)
    if on_gpu is not None:
        return on_gpu(x, residual, weight, eps)
    if _fits(x, weight) and _fits(residual, weight):
        kernel = find(
            "add_rms_norm", c_void_p, c_void_p, c_void_p, c_float, c_void_p, c_int64, c_int64
        )
        if kernel is not None:
            output, width = torch.empty_like(x), weight.shape[0]
            rows = x.numel() // width
            pointers = x.data_ptr(), residual.data_ptr(), weight.data_ptr()
            kernel(*pointers, eps, output.data_ptr(), rows, width)
            return output
    return add_rms_norm_reference(x, residual, weight, eps)


def add_rms_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """The specification of `add_rms_norm`, of any device and dtype."""
    residual.add_(x)
    return rms_norm_reference(residual, weight, eps)


def _fits(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the C++ kernel reads such tensors."""
    return (
        x.is_cpu
        and x.dtype is torch.float32
        and x.is_contiguous()
        and weight.dtype is torch.float32
        and weight.is_contiguous()
    )
