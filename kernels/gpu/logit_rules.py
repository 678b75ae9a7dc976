"""What rows ask of their logits, in place; references in `kernels.penalties`, `.token_bias` and
`.token_mask`.

A program takes one piece of one row. Bytes a token of the vocabulary, which are the floor of a rule
that stands alone:

    penalties   13: a score is read and written, a count and a flag are read
    bias        12: a score is read and written, a bias is read
    mask        1 bit is read, and what is forbidden is written

In torch penalties are a dozen passes with as many temporary tensors, a bias copies its rows of the
table first, and a mask is spread to 4 bytes a token. The rules are not fused: their rows differ,
and a batch seldom has more than one kind. Banned sequences stay with torch. They change a handful
of scores a row: there is no pass to save.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.operation import operation

_BLOCK_SIZE = 2048


@triton.jit
def _piece(matrix, row, vocab_size, BLOCK: tl.constexpr):
    """Pointers to a program's piece of a row, and whether they are inside."""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return matrix + row.to(tl.int64) * vocab_size + columns, columns < vocab_size


@triton.jit
def penalties_kernel(
    scores, rows, in_prompt, generated, slots, repetitions, presences, frequencies, vocab_size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    slot = tl.load(slots + i)
    places, inside = _piece(scores, tl.load(rows + i), vocab_size, BLOCK)
    counts, _ = _piece(generated, slot, vocab_size, BLOCK)
    flags, _ = _piece(in_prompt, slot, vocab_size, BLOCK)
    x = tl.load(places, mask=inside, other=0.0)
    count = tl.load(counts, mask=inside, other=0)
    present = count > 0
    seen = (tl.load(flags, mask=inside, other=0) != 0) | present
    repetition = tl.load(repetitions + i)
    # Divided as IEEE 754 says, so that scores tie where they tie in the reference.
    repeated = tl.where(x < 0, x * repetition, tl.div_rn(x, repetition))
    x = tl.where(seen, repeated, x)
    x -= count.to(tl.float32) * tl.load(frequencies + i)
    x -= tl.where(present, tl.load(presences + i), 0.0)
    tl.store(places, x, mask=inside)


@triton.jit
def token_bias_kernel(scores, rows, table, slots, vocab_size, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    places, inside = _piece(scores, tl.load(rows + i), vocab_size, BLOCK)
    biases, _ = _piece(table, tl.load(slots + i), vocab_size, BLOCK)
    x = tl.load(places, mask=inside, other=0.0) + tl.load(biases, mask=inside, other=0.0)
    tl.store(places, x, mask=inside)


@triton.jit
def mask_logits_kernel(
    logits, rows, words, width, vocab_size, LEAST: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0)
    places, inside = _piece(logits, tl.load(rows + i), vocab_size, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + i * width + (columns >> 5), mask=inside, other=0)
    forbidden = ((word >> (columns & 31)) & 1) == 0
    tl.store(places, LEAST, mask=inside & forbidden)


def _grid(rows: Tensor, vocab_size: int) -> tuple[tuple[int, int], dict[str, int]]:
    block = min(_BLOCK_SIZE, triton.next_power_of_2(vocab_size))
    options = {"BLOCK": block, "num_warps": max(1, block // 256)}
    return (rows.shape[0], triton.cdiv(vocab_size, block)), options


@operation(mutates_args=["scores"])
def apply_penalties(
    scores: Tensor,
    rows: Tensor,
    in_prompt: Tensor,
    generated: Tensor,
    slots: Tensor,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> None:
    """See `kernels.penalties.apply_penalties`; all tensors are contiguous."""
    vocab_size = scores.shape[1]
    grid, options = _grid(rows, vocab_size)
    penalties_kernel[grid](
        scores, rows, in_prompt, generated, slots, repetition, presence, frequency, vocab_size,
        **options,
    )  # fmt: skip


@operation(mutates_args=["scores"])
def add_token_bias(scores: Tensor, rows: Tensor, table: Tensor, slots: Tensor) -> None:
    """See `kernels.token_bias.add_token_bias`; all tensors are contiguous."""
    grid, options = _grid(rows, scores.shape[1])
    token_bias_kernel[grid](scores, rows, table, slots, scores.shape[1], **options)


@operation(mutates_args=["logits"])
def mask_logits(logits: Tensor, rows: Tensor, words: Tensor) -> None:
    """See `kernels.token_mask.mask_logits`; all tensors are contiguous.

    Args:
        rows: [m], int64.
        words: [m, words], int32.
    """
    grid, options = _grid(rows, logits.shape[1])
    mask_logits_kernel[grid](
        logits, rows, words, words.shape[1], logits.shape[1],
        LEAST=torch.finfo(logits.dtype).min, **options,
    )  # fmt: skip
