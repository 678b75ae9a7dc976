"""Whole KV blocks of all layers moved in one launch; the references are in `kernels.block_copy`.

A program moves one piece of the keys or the values of one block in one layer, or their scales:
each word is read once and written once. Blocks that are sources and targets at the same time go
through memory beside the cache, by one launch that reads and one that writes, as nothing orders
the programs of one.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.operation import operation

# Words of 4 bytes that a program moves.
_PIECE = 2048


@triton.jit
def _move(source, target, piece, words, PIECE: tl.constexpr):
    column = piece * PIECE + tl.arange(0, PIECE)
    inside = column < words
    tl.store(target + column, tl.load(source + column, mask=inside, other=0), mask=inside)


@triton.jit
def _move_part(
    stored, staged, source, target, at, part, num_blocks, piece, words,
    WAY: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Of a block of `stored`, [parts, num_blocks, words]; `staged` has it from word `at` on."""
    first = stored + part * num_blocks * words
    if WAY == "copy":
        _move(first + source * words, first + target * words, piece, words, PIECE)
    elif WAY == "read":
        _move(first + source * words, staged + at, piece, words, PIECE)
    else:
        _move(staged + at, first + target * words, piece, words, PIECE)


@triton.jit
def move_blocks_kernel(
    numbers, scales, staged, sources, targets, num_blocks, words, scale_words, number_pieces,
    PARTS: tl.constexpr, PIECE: tl.constexpr, SCALED: tl.constexpr, WAY: tl.constexpr,
):  # fmt: skip
    index, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    piece = tl.program_id(2)
    source = tl.load(sources + index).to(tl.int64)
    target = tl.load(targets + index).to(tl.int64)
    if (source >= 0) & (target >= 0):
        at = index * PARTS * (words + scale_words)
        if piece < number_pieces:
            _move_part(
                numbers, staged, source, target, at + part * words, part, num_blocks, piece, words,
                WAY, PIECE,
            )  # fmt: skip
        elif SCALED:
            at += PARTS * words + part * scale_words
            _move_part(
                scales, staged, source, target, at, part, num_blocks, piece - number_pieces,
                scale_words, WAY, PIECE,
            )  # fmt: skip


def _launch(
    numbers: Tensor, scales: Tensor | None, staged: Tensor, sources: Tensor, targets: Tensor,
    way: str,
) -> None:  # fmt: skip
    parts, (num_blocks, words) = 2 * numbers.shape[0], numbers.shape[2:]
    scale_words = 0 if scales is None else scales.shape[3]
    piece = min(_PIECE, triton.next_power_of_2(words))
    number_pieces = triton.cdiv(words, piece)
    grid = (sources.shape[0], parts, number_pieces + triton.cdiv(scale_words, piece))
    if sources.shape[0]:
        move_blocks_kernel[grid](
            numbers, None if scales is None else scales.view(torch.int32), staged,
            sources, targets, num_blocks, words, scale_words, number_pieces,
            PARTS=parts, PIECE=piece, SCALED=scales is not None, WAY=way,
            num_warps=max(1, piece // 512),
        )  # fmt: skip


@operation(mutates_args=["numbers", "scales"])
def copy_blocks(numbers: Tensor, scales: Tensor | None, sources: Tensor, targets: Tensor) -> None:
    """See `kernels.block_copy.copy_blocks`; no source is a target. Negative ids are padding."""
    _launch(numbers, scales, numbers, sources, targets, "copy")


@operation(mutates_args=["bits"])
def read_blocks(numbers: Tensor, scales: Tensor | None, blocks: Tensor, bits: Tensor) -> None:
    """See `kernels.block_copy.read_blocks`; `bits` is contiguous. Negative ids are padding."""
    _launch(numbers, scales, bits, blocks, blocks, "read")


@operation(mutates_args=["numbers", "scales"])
def write_blocks(numbers: Tensor, scales: Tensor | None, blocks: Tensor, bits: Tensor) -> None:
    """See `kernels.block_copy.write_blocks`; `bits` is contiguous. Negative ids are padding."""
    _launch(numbers, scales, bits, blocks, blocks, "write")
