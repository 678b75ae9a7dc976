"""Sampling from logits without sorting them; the reference is `kernels.sampling`.

A program takes one row; its order of filters, its ties and its random number are the reference's.
It is the inverse transform method: the first token whose cumulative weight exceeds a uniform
share of the total. Two kernels follow each other:

    candidates   the row's peak, then (top-k, top-p) the tokens that may pass, side by side, or
                 (temperature and min-p alone) the total weight
    draw         the exact thresholds of top-k and top-p among the candidates, and the draw

Weights are exponentials of scaled scores in fixed point, int64 (44 bits below 1 for vocabularies of
up to 2**18 tokens). Their sums are exact in any order, so a row's token cannot depend on how a sum
was split, and each comparison in one pass holds in the next. A weight is off by less than 2**-44 of
the peak's, besides what float32 exponentials are; float64 is computed for one number a row.
The reference sums probabilities of float32, so a token may differ where a cumulative probability
is within 1e-5 of the random number or of top-p.

Candidates are as many as top-k says, and 2,048 where top-p stands alone, or some more; tokens
whose weight is 0, as those that a grammar forbids, are none. Where the candidates do not suffice (a
nucleus of thousands of tokens, or thousands of equal logits), the search goes over the whole row,
16 times for bfloat16 and 32 times for float32: tens of times slower, and seldom.

Cost of a row of 151,936 bfloat16 logits: two reads of 0.3 MB for the candidates, one or none for
the draw (half a read more for unfiltered rows), 24 KB for candidates; and about 25 operations a
token for each pass that weighs. The second read comes from L2. The floor is one read. One program a
row leaves most of the device idle below some hundred rows; there a row takes some ten microseconds
of a step that takes milliseconds, and splitting rows would need another kernel to merge them.
"""

import math

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
from kernels.gpu.row_weights import (
    draw_from_row,
    first_above,
    first_of,
    least_of_row,
    load_block,
    row_total,
    scale,
    share_of,
    target_of,
    weigh,
)

NO_TOKEN = tl.constexpr(-1)
NOTHING_LEFT = tl.constexpr(-2)
# Numbers that a program looks at together, and most candidates of a row.
BLOCK_SIZE = 4096
CANDIDATES = 4096


@triton.jit
def uniform_bits(seed, position, sample_index):
    """uint64: the 53 bits of `kernels.philox.philox_uniform`, a row's random number times 2**53."""
    first = position.to(tl.uint32)
    second = sample_index.to(tl.uint32)
    high, low, _, _ = tl.philox(seed, first, second, first * 0, first * 0)
    return ((high >> 5).to(tl.uint64) << 26) | (low >> 6).to(tl.uint64)


@triton.jit
def candidates_kernel(
    tokens, scores, stride, rows, temperatures, top_ks, top_ps, log_min_ps,
    peaks, totals, counts, values, ids, vocab_size,
    GATHER: tl.constexpr, SCALE: tl.constexpr, FLOOR: tl.constexpr, LOW: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + i)
    if row >= 0:
        temperature, top_k = tl.load(temperatures + i), tl.load(top_ks + i)
        line = scores + (row if GATHER else i) * stride
        best, broken = lane_maxima(line, vocab_size, BLOCK)
        peak = tl.max(best, axis=0)
        trusted = (tl.load(tokens + row) != NO_TOKEN) & (broken == 0)
        tl.store(peaks + i, tl.where(trusted, peak, float("nan")))
        count = tl.full((), 0, tl.int32)
        total = tl.full((), 0, tl.int64)
        if trusted & (temperature > 0) & (tl.abs(peak) < float("inf")):
            if (top_k > 0) | (tl.load(top_ps + i) < 1):
                enough = tl.where(top_k > 0, top_k, WIDTH // 2)
                lanes = tl.full((BLOCK,), 1, tl.int32)
                key = threshold(sort_key(best), lanes, enough, LOW)
                least = scale(of_sort_key(key, LOW), peak, temperature)
                least = tl.maximum(least, FLOOR)
                for start in range(0, vocab_size, BLOCK):
                    columns, inside, x, scaled = load_block(
                        line, start, vocab_size, peak, temperature, BLOCK
                    )
                    chosen = inside & (scaled >= least)
                    count = keep(
                        chosen, count, x, columns, values + i * WIDTH, ids + i * WIDTH, WIDTH
                    )
                    if top_k == 0:
                        total += tl.sum(weigh(scaled, NOTHING, SCALE), axis=0)
            else:
                total = row_total(
                    line, vocab_size, peak, temperature, tl.load(log_min_ps + i), SCALE, BLOCK
                )
        tl.store(counts + i, count)
        tl.store(totals + i, total)


@triton.jit
def draw_kernel(
    tokens, scores, stride, rows, seeds, positions, sample_indices, temperatures, top_ks, top_ps,
    log_min_ps, peaks, totals, counts, values, ids, vocab_size,
    GATHER: tl.constexpr, SCALE: tl.constexpr, LOW: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + i)
    if row >= 0:
        temperature, peak = tl.load(temperatures + i), tl.load(peaks + i)
        line = scores + (row if GATHER else i) * stride
        token = tl.full((), NO_TOKEN, tl.int64)
        if peak < float("inf"):  # neither is NaN
            if peak == NOTHING:
                token = tl.full((), NOTHING_LEFT, tl.int64)
            elif temperature == 0:
                token = first_of(line, vocab_size, peak, BLOCK)
            else:
                bits = uniform_bits(
                    tl.load(seeds + i), tl.load(positions + i), tl.load(sample_indices + i)
                )
                token = _draw(
                    line, vocab_size, peak, temperature, bits, tl.load(top_ks + i),
                    tl.load(top_ps + i), tl.load(log_min_ps + i), tl.load(totals + i),
                    tl.load(counts + i), values + i * WIDTH, ids + i * WIDTH,
                    SCALE, LOW, WIDTH, BLOCK,
                )  # fmt: skip
        tl.store(tokens + row, token)


@triton.jit
def _draw(
    line, vocab_size, peak, temperature, bits, top_k, top_p, log_min_p, total, count, values, ids,
    SCALE: tl.constexpr, LOW: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """int64: a row's token."""
    least = log_min_p
    filtered = (top_k > 0) | (top_p < 1)
    complete = False
    places = tl.arange(0, WIDTH)
    x = tl.load(values + places, mask=places < count, other=NOTHING)
    scaled = scale(x, peak, temperature)
    if filtered:
        least_of_k = tl.full((), NOTHING, tl.float32)
        if top_k > 0:
            key = threshold(sort_key(x), tl.full((WIDTH,), 1, tl.int32), top_k, LOW)
            least_of_k = scale(of_sort_key(key, LOW), peak, temperature)
        weights = weigh(scaled, least_of_k, SCALE)
        among = tl.sum(weights, axis=0)
        share = share_of(tl.where(top_k > 0, among, total), top_p)
        complete = (count <= WIDTH) & (among >= share)
        if complete:
            least = tl.maximum(least, least_of_k)
            if top_p < 1:
                key = threshold(sort_key(x), weights, share, LOW)
                least = tl.maximum(least, scale(of_sort_key(key, LOW), peak, temperature))
        else:
            least = tl.maximum(
                least,
                least_of_row(line, vocab_size, peak, temperature, top_k, top_p, SCALE, LOW, BLOCK),
            )
            total = row_total(line, vocab_size, peak, temperature, least, SCALE, BLOCK)
    token = tl.full((), 0, tl.int64)
    if complete:
        weights = weigh(scaled, least, SCALE)
        target = target_of(bits, tl.sum(weights, axis=0))
        token = tl.load(ids + first_above(weights, 0, target)).to(tl.int64)
    else:
        token = draw_from_row(
            line, vocab_size, peak, temperature, least, target_of(bits, total), SCALE, BLOCK
        )
    return token


@operation(mutates_args=["tokens"])
def sample_rows(
    tokens: Tensor,
    scores: Tensor,
    processed: bool,
    rows: Tensor,
    seeds: Tensor,
    positions: Tensor,
    sample_indices: Tensor,
    temperatures: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    log_min_p: Tensor,
) -> None:
    """Replace the tokens of some rows by what their rules choose.

    Args:
        tokens: [all rows], int64, of `greedy_tokens`: `NO_TOKEN` stays.
        scores: [all rows, vocab_size], of any floating dtype; or, where `processed`, of the n
            rows alone. Contiguous within a row.
        rows: [n], int64, which rows of the tokens; a negative one is padding.
        seeds, positions, sample_indices: [n], int64, of the random numbers.
        temperatures: [n], float32; 0 for the likeliest token.
        top_k: [n], int32; 0 for all.
        top_p: [n], float64; 1 or more for all.
        log_min_p: [n], float32; minus infinity for all.
    """
    n, vocab_size = rows.shape[0], scores.shape[1]
    block = min(BLOCK_SIZE, triton.next_power_of_2(vocab_size))
    width = min(CANDIDATES, block)
    peaks, totals = rows.new_empty(n, dtype=float32), rows.new_empty(n, dtype=int64)
    counts, ids = rows.new_empty(n, dtype=int32), rows.new_empty((n, width), dtype=int32)
    values = rows.new_empty((n, width), dtype=float32)
    found = peaks, totals, counts, values, ids, vocab_size
    # The sum of so many weights of at most 1 each fits into 63 bits.
    bits = min(44, 62 - (vocab_size - 1).bit_length())
    options = {
        "GATHER": not processed, "SCALE": 2.0**bits, "LOW": LOW_BITS[str(scores.dtype)],
        "WIDTH": width, "BLOCK": block,
    }  # fmt: skip
    candidates_kernel[(n,)](
        tokens, scores, scores.stride(0), rows, temperatures, top_k, top_p, log_min_p, *found,
        FLOOR=-math.log(2) * bits - 0.01, num_warps=max(1, block // 256), **options,
    )  # fmt: skip
    draw_kernel[(n,)](
        tokens, scores, scores.stride(0), rows, seeds, positions, sample_indices, temperatures,
        top_k, top_p, log_min_p, *found, num_warps=max(1, block // 512), **options,
    )  # fmt: skip
