"""Weights of the tokens of a row, and what is found by weighing the whole row.

Weights are exponentials of scaled scores in fixed point, int64; see `kernels.gpu.sampling`.
"""

import triton
import triton.language as tl

from kernels.gpu.row_search import NOTHING, of_sort_key, sort_key, trial_key


@triton.jit
def scale(x, peak, temperature):
    """Divided as IEEE 754 says: what ties in the reference must tie here."""
    return tl.div_rn(x - peak, temperature)


@triton.jit
def weigh(scaled, least, SCALE: tl.constexpr):
    """int64: exponentials of those scores that are not below the least."""
    return tl.where(scaled >= least, tl.exp(scaled) * SCALE, 0.0).to(tl.int64)


@triton.jit
def load_block(line, start, vocab_size, peak, temperature, BLOCK: tl.constexpr):
    """Ids, whether they are in the vocabulary, the scores, and these scaled."""
    columns = start + tl.arange(0, BLOCK)
    inside = columns < vocab_size
    x = tl.load(line + columns, mask=inside, other=NOTHING).to(tl.float32)
    return columns, inside, x, scale(x, peak, temperature)


@triton.jit
def share_of(total, top_p):
    """int64: the least weight that is no less than `top_p` of the total; 0 where all is kept."""
    wanted = total.to(tl.float64) * top_p
    share = wanted.to(tl.int64)
    share += (share.to(tl.float64) < wanted).to(tl.int64)
    return tl.where(top_p < 1, tl.maximum(share, 1), 0)


@triton.jit
def target_of(bits, total):
    """int64: the whole part of `bits` * 2**-53 of the total."""
    return tl.umulhi(bits << 11, total.to(tl.uint64)).to(tl.int64)


@triton.jit
def first_above(weights, before, target):
    """int32: the first place where `before` and the weights so far are more than the target."""
    cumulative = before + tl.cumsum(weights, axis=0)
    return tl.sum((cumulative <= target).to(tl.int32), axis=0)


@triton.jit
def first_of(line, vocab_size, peak, BLOCK: tl.constexpr):
    """int64: the lowest id of a token with this score."""
    lanes = tl.arange(0, BLOCK)
    first = tl.full((BLOCK,), 2147483647, tl.int32)
    for start in range(0, vocab_size, BLOCK):
        inside = start + lanes < vocab_size
        x = tl.load(line + start + lanes, mask=inside, other=NOTHING).to(tl.float32)
        first = tl.minimum(first, tl.where(x == peak, start + lanes, 2147483647))
    return tl.min(first, axis=0).to(tl.int64)


@triton.jit
def row_total(line, vocab_size, peak, temperature, least, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """int64: the weight of all tokens that are not below the least."""
    total = tl.full((), 0, tl.int64)
    for start in range(0, vocab_size, BLOCK):
        _, _, _, scaled = load_block(line, start, vocab_size, peak, temperature, BLOCK)
        total += tl.sum(weigh(scaled, least, SCALE), axis=0)
    return total


@triton.jit
def _row_threshold(
    line, vocab_size, peak, temperature, least, target,
    WEIGH: tl.constexpr, SCALE: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """float32: as `threshold`, of the whole row, scaled; `least` is of what is weighed."""
    found = tl.full((), 0, tl.uint32)
    for step in range(32 - LOW):
        trial = trial_key(found, step)
        total = tl.full((), 0, tl.int64)
        for start in range(0, vocab_size, BLOCK):
            _, inside, x, scaled = load_block(line, start, vocab_size, peak, temperature, BLOCK)
            weights = weigh(scaled, least, SCALE) if WEIGH else inside.to(tl.int64)
            total += tl.sum(tl.where(sort_key(x) >= trial, weights, 0), axis=0)
        found = tl.where(total >= target, trial, found)
    return scale(of_sort_key(found, LOW), peak, temperature)


@triton.jit
def least_of_row(
    line, vocab_size, peak, temperature, top_k, top_p,
    SCALE: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """float32: the least score that top-k and top-p keep, where candidates do not suffice."""
    least = tl.full((), NOTHING, tl.float32)
    if top_k > 0:
        least = _row_threshold(
            line, vocab_size, peak, temperature, least, top_k, False, SCALE, LOW, BLOCK
        )
    if top_p < 1:
        total = row_total(line, vocab_size, peak, temperature, least, SCALE, BLOCK)
        share = share_of(total, top_p)
        nucleus = _row_threshold(
            line, vocab_size, peak, temperature, least, share, True, SCALE, LOW, BLOCK
        )
        least = tl.maximum(least, nucleus)
    return least


@triton.jit
def draw_from_row(
    line, vocab_size, peak, temperature, least, target, SCALE: tl.constexpr, BLOCK: tl.constexpr
):
    """int64: the first token with a cumulative weight of more than the target."""
    cumulative = tl.full((), 0, tl.int64)
    before = cumulative
    first = tl.full((), 0, tl.int32)
    start = tl.full((), 0, tl.int32)
    while (cumulative <= target) & (start < vocab_size):
        first, before = start, cumulative
        _, _, _, scaled = load_block(line, start, vocab_size, peak, temperature, BLOCK)
        cumulative += tl.sum(weigh(scaled, least, SCALE), axis=0)
        start += BLOCK
    _, _, _, scaled = load_block(line, first, vocab_size, peak, temperature, BLOCK)
    return (first + first_above(weigh(scaled, least, SCALE), before, target)).to(tl.int64)
