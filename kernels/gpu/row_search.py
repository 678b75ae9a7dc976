"""Parts of the kernels that look for the best tokens of a row of logits.

A row is never sorted. The k-th largest of some numbers is found by a search on their bits: an
integer that sorts as the float does is built from its highest bit down, each bit in one pass that
counts (or weighs) what is at least as large. So the answer is exact after at most 32 passes.

The passes do not go over the vocabulary, of which few tokens matter. While a program reads its
row, each lane keeps the largest number that it has seen. As the k largest of these are k numbers
of the row, the smallest of them is no larger than the row's own k-th; and as there are thousands
of lanes, few numbers of the row are above it that are not such a lane's largest. Those few, the
candidates, are written side by side in the order of their token ids, and all else is done with
them.
"""

import triton
import triton.language as tl

NOTHING = tl.constexpr(float("-inf"))


@triton.jit
def sort_key(x):
    """uint32 numbers that sort as float32 ones do; -0 comes before 0."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def of_sort_key(key, LOW: tl.constexpr):
    """The number of a key whose lowest bits are missing; minus infinity for a key of 0."""
    bits = key.to(tl.int32, bitcast=True)
    # Of a negative number, the bits that are 0 in all numbers of its dtype are 1 in the key.
    negative = ~(bits | ((1 << LOW) - 1))
    bits = tl.where(bits < 0, bits ^ -2147483648, negative)
    return tl.where(key == 0, NOTHING, bits.to(tl.float32, bitcast=True))


@triton.jit
def trial_key(found, step):
    """`found` with one bit more, the highest in the first step."""
    return found | (1 << (31 - step))


@triton.jit
def threshold(keys, weights, target, LOW: tl.constexpr):
    """The largest key such that those not below it weigh `target` at least; 0 where none is.

    Args:
        keys: uint32, of numbers whose lowest `LOW` bits are 0.
        weights: int32 or int64, as `target`, which is over 0.
    """
    found = tl.full((), 0, tl.uint32)
    for step in range(32 - LOW):
        trial = trial_key(found, step)
        weight = tl.sum(tl.where(keys >= trial, weights, 0), axis=0)
        found = tl.where(weight >= target, trial, found)
    return found


@triton.jit
def lane_maxima(line, vocab_size, BLOCK: tl.constexpr):
    """[BLOCK], float32: the largest number that each lane sees; and 1 where any is NaN, else 0."""
    lanes = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), NOTHING, tl.float32)
    broken = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, vocab_size, BLOCK):
        inside = start + lanes < vocab_size
        x = tl.load(line + start + lanes, mask=inside, other=NOTHING).to(tl.float32)
        best = tl.where(x > best, x, best)
        broken = tl.where(x != x, 1, broken)
    return best, tl.max(broken, axis=0)


@triton.jit
def keep(chosen, count, x, columns, values, ids, WIDTH: tl.constexpr):
    """Write the chosen ones of a block behind the `count` before them; returns the new count."""
    place = count + tl.cumsum(chosen.to(tl.int32), axis=0) - 1
    fits = chosen & (place < WIDTH)
    tl.store(values + place, x, mask=fits)
    tl.store(ids + place, columns, mask=fits)
    return count + tl.sum(chosen.to(tl.int32), axis=0)


# How many of the lowest bits are 0 in each float32 that was a number of the dtype.
LOW_BITS = {"torch.float32": 0, "torch.float16": 13, "torch.bfloat16": 16}
