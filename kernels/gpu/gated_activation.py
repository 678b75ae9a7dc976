"""The gated activation of an MLP; the references are in `kernels.silu_and_mul`.

A program takes one piece of one row. Two numbers are read and one is written for each number of
the result, which is the floor; the few operations on each, one exponential among them, hide behind
that.
"""

import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.operation import operation


@triton.jit
def silu_and_mul_kernel(gate_up, output, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_up + 2 * row * width + columns, mask=inside, other=0.0)
    up = tl.load(gate_up + (2 * row + 1) * width + columns, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    power = tl.exp(-tl.abs(wide))  # of what is not positive, so that nothing overflows
    sigmoid = tl.where(wide < 0, power, 1.0) / (1.0 + power)
    # Rounded before it is multiplied, as the reference does it.
    activated = (wide * sigmoid).to(gate.dtype)
    tl.store(output + row * width + columns, activated * up, mask=inside)


def _half(gate_up: Tensor) -> Tensor:
    return gate_up.new_empty((*gate_up.shape[:-1], gate_up.shape[-1] // 2))


@operation(fake=_half)
def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `kernels.silu_and_mul.silu_and_mul`."""
    gate_up = gate_up.contiguous()
    output = _half(gate_up)
    width = output.shape[-1]
    block = min(2048, triton.next_power_of_2(width))
    if output.numel():
        silu_and_mul_kernel[(output.numel() // width, triton.cdiv(width, block))](
            gate_up, output, width, BLOCK=block, num_warps=max(1, block // 512)
        )
    return output
