"""RMSNorm, alone and with the addition before it; the references are in `kernels.rms_norm`.

A program takes one row, all of it at once: it is read once and written once, which is the floor.
Adding and normalizing in one kernel saves a pass over the row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.operation import operation


@triton.jit
def rms_norm_kernel(
    x, residual, weight, output, width, eps,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row + columns, mask=inside, other=0.0)
    if ADD:
        # Rounded to the dtype of the residual before it is normalized, as it is kept.
        values += tl.load(residual + row + columns, mask=inside, other=0.0)
        tl.store(residual + row + columns, values, mask=inside)
    wide = values.to(tl.float32)
    mean_square = tl.sum(wide * wide, axis=0) / width
    scaled = (wide * tl.rsqrt(mean_square + eps)).to(values.dtype)
    weights = tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(output + row + columns, scaled * weights, mask=inside)


def _launch(x: Tensor, residual: Tensor, weight: Tensor, output: Tensor, eps: float, add: bool):
    width = weight.shape[0]
    block = triton.next_power_of_2(width)
    rms_norm_kernel[(x.numel() // width,)](
        x, residual, weight, output, width, eps,
        ADD=add, BLOCK=block, num_warps=min(16, max(1, block // 512)),
    )  # fmt: skip


def _like(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@operation(fake=_like)
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `kernels.rms_norm.rms_norm`; `x` may be strided between rows of its last dimension."""
    x = x.contiguous()
    output = torch.empty_like(x)
    _launch(x, x, weight, output, eps, add=False)
    return output


@operation(mutates_args=["residual"], fake=_like)
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `kernels.rms_norm.add_rms_norm`; all tensors are contiguous."""
    output = torch.empty_like(x)
    _launch(x, residual, weight, output, eps, add=True)
    return output
