"""A kernel that cannot but spill: so it is known that spills would be seen."""

import sys

import torch
import triton
import triton.language as tl

from tests.kernels.gpu.aot import compiling
from tests.kernels.gpu.aot.case import Case


@triton.jit
def spilling_kernel(a, b, output, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    left = tl.load(a + rows * SIZE + columns)
    right = tl.load(b + rows * SIZE + columns)
    # 128 x 128 numbers of 4 bytes a warp group are 128 registers a thread, and here are two.
    product = tl.dot(left, right)
    other = tl.dot(right, left, product)
    tl.store(output + rows * SIZE + columns, product * other - tl.sum(other, axis=0)[None, :])


def _spill() -> None:
    x = torch.empty(128, 128, dtype=torch.bfloat16, device="meta")
    spilling_kernel[(1,)](x, x, x.float(), SIZE=128, num_warps=4, maxnreg=96)


if __name__ == "__main__":
    compiling.all_cases = lambda: {"spilling": Case("spilling", _spill)}
    for row in compiling.compile_cases("sm_90", ["spilling"]):
        print(row.line())
    sys.exit(0)
