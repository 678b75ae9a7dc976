"""The answer of a query from its partial results, by their log-sum-exp.

A partial result is the answer over some of the tokens. Weighted by the sum of their exponentials,
those of all tokens add up to the answer (Milakov and Gimelshein, 2018, arXiv:1805.02867). They are
taken in the order of the tokens, whatever computed them first.
"""

import triton
import triton.language as tl
from torch import Tensor

# Rows of a program: a query's heads.
_HEADS = 8


@triton.jit
def merge_partials_kernel(
    output, counts, merge_queries, merge_starts, merge_slots, partial, lse,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    merge = tl.program_id(0)
    if merge >= tl.load(counts + 1):
        return
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, BLOCK_D)
    real = head < NUM_HEADS
    inside = real[:, None] & (column < HEAD_DIM)[None, :]
    acc = tl.zeros([HEADS, BLOCK_D], tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    for i in range(tl.load(merge_starts + merge), tl.load(merge_starts + merge + 1)):
        place = tl.load(merge_slots + i).to(tl.int64) * NUM_HEADS + head
        of_slot = tl.load(lse + place, mask=real, other=0.0)
        numbers = partial + place[:, None] * HEAD_DIM + column[None, :]
        part = tl.load(numbers, mask=inside, other=0.0)
        new_top = tl.maximum(top, of_slot)
        # Before the first token that counts the maximum is -inf.
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        fade, weight = tl.exp2(top - shift), tl.exp2(of_slot - shift)
        acc = acc * fade[:, None] + part * weight[:, None]
        total = total * fade + weight
        top = new_top
    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    query = tl.load(merge_queries + merge).to(tl.int64)
    place = (query * NUM_HEADS + head)[:, None] * HEAD_DIM + column[None, :]
    tl.store(output + place, acc.to(output.dtype.element_ty), mask=inside)


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
        lse: [slots, heads], float32, base 2; -inf where no token was attended to.
    """
    num_heads, head_dim = output.shape[1:]
    heads = min(_HEADS, triton.next_power_of_2(num_heads))
    merge_partials_kernel[(most_merges, triton.cdiv(num_heads, heads))](
        output, counts, merge_queries, merge_starts, merge_slots, partial, lse,
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, HEADS=heads,
        BLOCK_D=triton.next_power_of_2(head_dim), num_warps=4,
    )  # fmt: skip
