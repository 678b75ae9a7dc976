"""The answer of a query from its partial results, by their log-sum-exp.

A partial result is the answer over some of the tokens. Weighted by the sum of their exponentials,
those of all tokens add up to the answer (Milakov and Gimelshein, 2018, arXiv:1805.02867). They are
taken in the order of the tokens, whatever computed them first.
"""

import triton
import triton.language as tl
from torch import Tensor

# Results that a program reads at once: its loads do not wait for each other.
_SLOTS = 16


@triton.jit
def merge_partials_kernel(
    output, counts, merge_queries, merge_starts, merge_slots, partial, lse,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SLOTS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    merge, head = tl.program_id(0), tl.program_id(1)
    if merge >= tl.load(counts + 1):
        return
    column = tl.arange(0, BLOCK_D)
    inside = column < HEAD_DIM
    acc = tl.zeros([BLOCK_D], tl.float32)
    total = tl.full([], 0.0, tl.float32)
    top = tl.full([], float("-inf"), tl.float32)
    begin, end = tl.load(merge_starts + merge), tl.load(merge_starts + merge + 1)
    for at in range(begin, end, SLOTS):
        place = at + tl.arange(0, SLOTS)
        real = place < end
        slot = tl.load(merge_slots + place, mask=real, other=0).to(tl.int64) * NUM_HEADS + head
        of_slot = tl.load(lse + slot, mask=real, other=float("-inf"))
        numbers = partial + slot[:, None] * HEAD_DIM + column[None, :]
        part = tl.load(numbers, mask=real[:, None] & inside[None, :], other=0.0)
        new_top = tl.maximum(top, tl.max(of_slot, 0))
        fade, weight = tl.exp2(top - new_top), tl.exp2(of_slot - new_top)
        acc = acc * fade + tl.sum(part * weight[:, None], 0)
        total = total * fade + tl.sum(weight, 0)
        top = new_top
    query = tl.load(merge_queries + merge).to(tl.int64)
    answer = (acc / total).to(output.dtype.element_ty)
    tl.store(output + (query * NUM_HEADS + head) * HEAD_DIM + column, answer, mask=inside)


def merge_partials(
    output: Tensor,
    counts: Tensor,
    merge_queries: Tensor,
    merge_starts: Tensor,
    merge_slots: Tensor,
    partial: Tensor,
    lse: Tensor,
    most_merges: int,
) -> None:
    """Write the answers of the queries that have several partial results.

    Args:
        output: [num_tokens, heads, head_dim], contiguous.
        counts: its second number says how many queries there are, at most `most_merges`.
        merge_queries: the rows of `output`.
        merge_starts: where the slots of each query begin in `merge_slots`, and of the last end.
        partial: [slots, heads, head_dim], float32.
        lse: [slots, heads], float32, base 2.
    """
    num_heads, head_dim = output.shape[1:]
    width = triton.next_power_of_2(head_dim)
    # A warp reads a row of 128 numbers at once, so that each lane adds up what it has read.
    merge_partials_kernel[(most_merges, num_heads)](
        output, counts, merge_queries, merge_starts, merge_slots, partial, lse,
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, SLOTS=_SLOTS, BLOCK_D=width,
        num_warps=max(1, width // 128),
    )  # fmt: skip
