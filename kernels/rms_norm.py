"""Root mean square layer normalization (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

from __future__ import annotations

import torch


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
    residual.add_(x)
    return rms_norm(residual, weight, eps)
