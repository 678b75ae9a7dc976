"""A linear layer that gives each row the same bits whatever other rows there are.

Libraries of products choose blocks, and with them the order of a sum, by the number of rows. Here
every sum takes its products in the order of the inputs, one fused multiply-add after the other (He
et al., "Defeating Nondeterminism in LLM Inference", Thinking Machines Lab, 2025, calls that batch
invariance). Processors that have the instruction agree, whatever the width of their vectors.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch.nn import functional

from kernels.cpu.library import find

_PANEL = 32  # outputs side by side, as in kernels/cpu/linear.cpp
_ARGUMENTS = (*(c_void_p,) * 4, *(c_int64,) * 3)


@dataclass(frozen=True, slots=True)
class PanelMatrix:
    """A matrix in the order in which the kernel reads it.

    Attributes:
        panels: [panels, in_features, 32], float32; panel `p` holds the weights of the outputs from
            `32 * p` on, 0 for those beyond the last.
        out_features: rows of the matrix.
    """

    panels: torch.Tensor
    out_features: int

    @classmethod
    def of(cls, matrix: torch.Tensor) -> PanelMatrix:
        """Of a matrix [out_features, in_features], float32, on the CPU."""
        out_features, in_features = matrix.shape
        padded = functional.pad(matrix, (0, 0, 0, -out_features % _PANEL))
        panels = padded.view(-1, _PANEL, in_features).transpose(1, 2).contiguous()
        return cls(panels, out_features)

    def dense(self) -> torch.Tensor:
        """The matrix, a copy."""
        return self.panels.transpose(1, 2).flatten(0, 1)[: self.out_features].clone()


def batch_invariant_linear(
    x: torch.Tensor, matrix: PanelMatrix, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`x` times the transposed matrix, plus the bias; there must be C++ kernels.

    Args:
        x: [rows, in_features], float32, on the CPU.
        bias: [out_features], float32.

    Returns:
        [rows, out_features], float32. A row of it depends on that row of `x` alone, to the bit.
    """
    kernel = find("batch_invariant_linear", *_ARGUMENTS)
    assert kernel is not None, "only the C++ kernels compute it"
    x = x.contiguous()
    rows, in_features = x.shape
    output = x.new_empty(rows, matrix.out_features)
    kernel(
        x.data_ptr(),
        matrix.panels.data_ptr(),
        None if bias is None else bias.data_ptr(),
        output.data_ptr(),
        rows,
        in_features,
        matrix.out_features,
    )
    return output


def batch_invariant_linear_reference(
    x: torch.Tensor, matrix: PanelMatrix, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """The specification of `batch_invariant_linear`, in float64 and without its rounding."""
    wide = None if bias is None else bias.double()
    return functional.linear(x.double(), matrix.dense().double(), wide)
