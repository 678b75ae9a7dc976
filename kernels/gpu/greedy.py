"""The likeliest token of each row; the reference is `kernels.greedy`.

A program takes one row and reads it once, which is the floor. Each lane keeps its largest logit and
the first token that had it. One program a row leaves most of a large device idle below some hundred
rows: a row of 0.3 MB takes some microseconds of a step that takes milliseconds.
"""

import triton
import triton.language as tl
from torch import Tensor, int64

from kernels.gpu.operation import operation

NO_TOKEN = tl.constexpr(-1)


@triton.jit
def greedy_tokens_kernel(logits, tokens, stride, vocab_size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    line = logits + row * stride
    lanes = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    first = tl.full((BLOCK,), 0, tl.int32)
    broken = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, vocab_size, BLOCK):
        inside = start + lanes < vocab_size
        x = tl.load(line + start + lanes, mask=inside, other=float("-inf")).to(tl.float32)
        better = x > best
        first = tl.where(better, start + lanes, first)
        best = tl.where(better, x, best)
        finite = tl.abs(x) < float("inf")
        broken = tl.where(inside & (finite == 0), 1, broken)
    peak = tl.max(best, axis=0)
    token = tl.min(tl.where(best == peak, first, vocab_size), axis=0)
    tl.store(tokens + row, tl.where(tl.max(broken, axis=0) > 0, NO_TOKEN, token).to(tl.int64))


def _tokens(logits: Tensor) -> Tensor:
    return logits.new_empty(logits.shape[0], dtype=int64)


@operation(fake=_tokens)
def greedy_tokens(logits: Tensor) -> Tensor:
    """See `kernels.greedy.greedy_tokens`; each row is contiguous."""
    tokens, vocab_size = _tokens(logits), logits.shape[1]
    block = min(4096, triton.next_power_of_2(vocab_size))
    if tokens.numel():
        greedy_tokens_kernel[(tokens.numel(),)](
            logits, tokens, logits.stride(0), vocab_size, BLOCK=block,
            num_warps=max(1, block // 256),
        )  # fmt: skip
    return tokens
