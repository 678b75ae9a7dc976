"""One sum of bfloat16 in the interpreter as it comes, in a process of its own.

Prints what came out, to be compared with what torch gives.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(a, b, output, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    tl.store(output + places, tl.load(a + places) + tl.load(b + places))


if __name__ == "__main__":
    a = torch.full((16,), 1.5, dtype=torch.bfloat16)
    output = torch.zeros_like(a)
    add_kernel[(1,)](a, a, output, SIZE=16)
    print(float(output[0]))
