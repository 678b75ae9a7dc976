"""Rows gathered from a matrix; the references are in `kernels.embedding`.

A program copies one piece of one row: 2 bytes moved for each byte of the result, which is the
floor. A step gathers embeddings at its beginning and chosen rows of two matrices at its end. These
two are not gathered by one kernel: it would save one launch a step, not one a layer, and the
second matrix would have to wait in the attention for the first.
"""

import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.operation import operation


@triton.jit
def gather_rows_kernel(matrix, rows, output, width, BLOCK: tl.constexpr):
    target = tl.program_id(0).to(tl.int64)
    source = tl.load(rows + target).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    # What pads a captured step reads nothing and still gives finite numbers.
    values = tl.load(matrix + source * width + columns, mask=inside & (source >= 0), other=0.0)
    tl.store(output + target * width + columns, values, mask=inside)


def _gathered(matrix: Tensor, rows: Tensor) -> Tensor:
    return matrix.new_empty((rows.shape[0], matrix.shape[1]))


@operation(fake=_gathered)
def gather_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """See `kernels.embedding`; the matrix is contiguous, and a negative row gives zeros."""
    output, width = _gathered(matrix, rows), matrix.shape[1]
    block = min(2048, triton.next_power_of_2(width))
    if output.numel():
        gather_rows_kernel[(rows.shape[0], triton.cdiv(width, block))](
            matrix, rows, output, width, BLOCK=block, num_warps=max(1, block // 512)
        )
    return output
