"""Log probabilities of chosen and of the likeliest tokens; the reference is `kernels.logprobs`.

The logarithms of a whole row are never written: a row needs its peak, the sum of its exponentials,
and few of its logits. Two kernels follow each other, a program a row:

    summary   reads the row for its peak, and again for the sum of exponentials and the candidates
              of `kernels.gpu.row_search`, at least k of them
    likeliest takes the k best of the candidates, one after the other, as the largest integers
              that sort as (logit, -id) does

So a row of 151,936 bfloat16 logits costs two reads of 0.3 MB, the second from L2, and 8 KB of
memory, where a table of logarithms and a sort of it would take 4 and 24 bytes a token. The floor is
one read. Where more than 1,024 tokens are as good as the k-th of the lanes (flat rows), the k best
are searched in the row itself, k reads more.
"""

import triton
import triton.language as tl
from torch import Tensor, float32, int32, int64

from kernels.gpu.operation import operation
from kernels.gpu.row_search import (
    LOW_BITS,
    NOTHING,
    keep,
    lane_maxima,
    of_sort_key,
    sort_key,
    threshold,
)

# Numbers that a program looks at together, and most candidates of a row.
BLOCK_SIZE = 4096
CANDIDATES = 1024

_LEAST = tl.constexpr(-3.4028234663852886e38)  # of float32


@triton.jit
def _unique_key(x, ids, inside):
    """uint64: larger for larger logits, of equal ones for lower ids; 0 outside."""
    key = sort_key(tl.where(x == 0, 0.0, x))  # -0 equals 0
    unique = (key.to(tl.uint64) << 32) | (~ids).to(tl.uint32, bitcast=True)
    return tl.where(inside, unique, 0)


# One kernel for any k: else k = 1 would have its own.
@triton.jit(do_not_specialize=["k"])
def summary_kernel(
    logits, stride, tokens, peaks, sums, counts, values, ids, logprobs, chosen_ids, vocab_size, k,
    LOW: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    line, lanes = logits + row * stride, tl.arange(0, BLOCK)
    best, _ = lane_maxima(line, vocab_size, BLOCK)
    peak = tl.max(best, axis=0)
    least = tl.full((), float("inf"), tl.float32)
    if k > 0:
        key = threshold(sort_key(best), tl.full((BLOCK,), 1, tl.int32), k, LOW)
        least = of_sort_key(key, LOW)
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.full((), 0, tl.int32)
    for start in range(0, vocab_size, BLOCK):
        columns = start + lanes
        inside = columns < vocab_size
        x = tl.load(line + columns, mask=inside, other=NOTHING).to(tl.float32)
        total += tl.exp(x - peak)
        if k > 0:
            chosen = inside & (x >= least)
            count = keep(chosen, count, x, columns, values + row * WIDTH, ids + row * WIDTH, WIDTH)
    log_sum = tl.log(tl.sum(total, axis=0))
    tl.store(peaks + row, peak)
    tl.store(sums + row, log_sum)
    tl.store(counts + row, count)
    token = tl.maximum(tl.load(tokens + row), 0)
    x = tl.load(line + token).to(tl.float32)
    tl.store(logprobs + row * (k + 1), tl.maximum(x - peak - log_sum, _LEAST))
    tl.store(chosen_ids + row * (k + 1), token)


@triton.jit(do_not_specialize=["k"])
def likeliest_kernel(
    logits, stride, peaks, sums, counts, values, ids, logprobs, chosen_ids, vocab_size, k,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    line, lanes = logits + row * stride, tl.arange(0, BLOCK)
    peak, log_sum, count = tl.load(peaks + row), tl.load(sums + row), tl.load(counts + row)
    places = tl.arange(0, WIDTH)
    x = tl.load(values + row * WIDTH + places, mask=places < count, other=NOTHING)
    names = tl.load(ids + row * WIDTH + places, mask=places < count, other=0)
    keys = _unique_key(x, names, places < count)
    last = tl.full((), 0xFFFFFFFFFFFFFFFF, tl.uint64)
    for i in range(k):
        found = tl.full((), 0, tl.uint64)
        if count <= WIDTH:
            found = tl.max(tl.where(keys < last, keys, 0), axis=0)
        else:
            for start in range(0, vocab_size, BLOCK):
                inside = start + lanes < vocab_size
                block = tl.load(line + start + lanes, mask=inside, other=NOTHING).to(tl.float32)
                block_keys = _unique_key(block, start + lanes, inside)
                others = tl.where(block_keys < last, block_keys, 0)
                found = tl.maximum(found, tl.max(others, axis=0))
        # Of a row of NaN there may be none, and its answer has no meaning.
        token = tl.maximum(~found.to(tl.uint32).to(tl.int32, bitcast=True), 0).to(tl.int64)
        value = of_sort_key((found >> 32).to(tl.uint32), 0)
        tl.store(logprobs + row * (k + 1) + 1 + i, tl.maximum(value - peak - log_sum, _LEAST))
        tl.store(chosen_ids + row * (k + 1) + 1 + i, token)
        last = found


def _results(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor]:
    shape = logits.shape[0], 1 + min(k, logits.shape[1])
    return logits.new_empty(shape, dtype=float32), logits.new_empty(shape, dtype=int64)


@operation(fake=_results)
def token_logprobs(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """See `kernels.logprobs.token_logprobs`; each row of the logits is contiguous.

    Returns:
        [rows, 1 + k], float32, and [rows, 1 + k], int64: of each row its token first, then its
        likeliest tokens.
    """
    logprobs, chosen_ids = _results(logits, tokens, k)
    (rows, vocab_size), k = logits.shape, logprobs.shape[1] - 1
    if rows == 0:
        return logprobs, chosen_ids
    block = min(BLOCK_SIZE, triton.next_power_of_2(vocab_size))
    width = min(CANDIDATES, block)
    peaks, sums = logits.new_empty((2, rows), dtype=float32)
    counts = logits.new_empty(rows, dtype=int32)
    values = logits.new_empty((rows, width if k else 0), dtype=float32)
    ids = logits.new_empty(values.shape, dtype=int32)
    found = peaks, sums, counts, values, ids, logprobs, chosen_ids, vocab_size, k
    summary_kernel[(rows,)](
        logits, logits.stride(0), tokens, *found, LOW=LOW_BITS[str(logits.dtype)], WIDTH=width,
        BLOCK=block, num_warps=max(1, block // 256),
    )  # fmt: skip
    if k:
        # A few numbers a lane: what it does, one after the other, are reductions.
        likeliest_kernel[(rows,)](
            logits, logits.stride(0), *found, WIDTH=width, BLOCK=block,
            num_warps=max(1, width // 256),
        )  # fmt: skip
    return logprobs, chosen_ids
