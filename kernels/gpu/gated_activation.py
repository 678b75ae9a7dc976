"""The gated activations of an MLP; references in `kernels.silu_and_mul` and `kernels.gelu_and_mul`.

A program takes one piece of one row. Two numbers are read and one is written for each number of
the result, which is the floor; the few operations on each, one exponential among them, hide behind
that. GELU's approximation, x / 2 (1 + tanh u), is computed as x times the sigmoid of 2 u, the same
number.
"""

import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.operation import operation


@triton.jit
def _sigmoid(x):
    power = tl.exp(-tl.abs(x))  # of what is not positive, so that nothing overflows
    return tl.where(x < 0, power, 1.0) / (1.0 + power)


@triton.jit
def _share(x, ACTIVATION: tl.constexpr):
    """What the gate is multiplied by."""
    if ACTIVATION == "silu":
        share = _sigmoid(x)
    elif ACTIVATION == "gelu_tanh":
        share = _sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * x * x))  # 2 sqrt(2 / pi)
    else:
        share = 0.5 * (1.0 + tl.math.erf(x * 0.7071067811865476))  # sqrt(1 / 2)
    return share


@triton.jit
def gated_activation_kernel(gate_up, output, width, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_up + 2 * row * width + columns, mask=inside, other=0.0)
    up = tl.load(gate_up + (2 * row + 1) * width + columns, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    # Rounded before it is multiplied, as the reference does it.
    activated = (wide * _share(wide, ACTIVATION)).to(gate.dtype)
    tl.store(output + row * width + columns, activated * up, mask=inside)


def _half(gate_up: Tensor, *_: object) -> Tensor:
    return gate_up.new_empty((*gate_up.shape[:-1], gate_up.shape[-1] // 2))


def _launch(gate_up: Tensor, activation: str) -> Tensor:
    gate_up = gate_up.contiguous()
    output = _half(gate_up)
    width = output.shape[-1]
    block = min(2048, triton.next_power_of_2(width))
    if output.numel():
        gated_activation_kernel[(output.numel() // width, triton.cdiv(width, block))](
            gate_up, output, width, ACTIVATION=activation, BLOCK=block,
            num_warps=max(1, block // 512),
        )  # fmt: skip
    return output


@operation(fake=_half)
def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `kernels.silu_and_mul.silu_and_mul`."""
    return _launch(gate_up, "silu")


@operation(fake=_half)
def gelu_and_mul(gate_up: Tensor, by_tanh: bool) -> Tensor:
    """See `kernels.gelu_and_mul.gelu_and_mul`."""
    return _launch(gate_up, "gelu_tanh" if by_tanh else "gelu")
