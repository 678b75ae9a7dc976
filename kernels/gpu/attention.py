"""Paged attention; the reference is `kernels.paged_attention.paged_attention_reference`.

A program computes one tile of `kernels.gpu.attention_plan` for one key-value head. The query heads
that share it are rows of one matrix (grouped-query attention; Ainslie et al., 2023,
arXiv:2305.13245), and so are the tile's queries: row `r` is head `r % group` of query `r // group`.
The tile goes over its run of keys in spans with the online softmax (Milakov and Gimelshein, 2018,
arXiv:1805.02867; Dao et al., 2022, arXiv:2205.14135), in powers of 2. Spans that all queries attend
to as a whole come first, without masks and with asynchronous copies; then the others.

A decode is a tile of one query, and a long one is several tiles (split-KV; Dao et al.,
"Flash-Decoding", 2023). Sequences that share a prefix are one tile on its blocks (cascade; Juravsky
et al., "Hydragen", 2024, arXiv:2402.05099; Ye et al., 2024).
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.attention_config import launch_config
from kernels.gpu.attention_numbers import PLAIN, decode, product_types
from kernels.gpu.merge_partials import merge_partials
from kernels.gpu.operation import operation

_LOG2_E = math.log2(math.e)
# Of matrix products, which compile for no less; heads that are narrower are padded.
_LEAST_DEPTH = 16


@triton.jit
def _span(
    q, acc, top, total, at, first, end, low, length,
    keys, values, key_scales, value_scales, blocks, scale, cap,
    block_stride, token_stride, scale_block_stride, scale_token_stride,
    MASKED: tl.constexpr, SOFTCAP: tl.constexpr, FORMAT: tl.constexpr, VALUE_TYPE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Go on with the softmax over the tokens from `at` on: sums, maxima and totals of the rows."""
    token = at + tl.arange(0, BLOCK_N)
    column = tl.arange(0, BLOCK_D)
    if MASKED:
        # Other slots may hold anything, NaN included: they are not read.
        held = (token >= low) & (token < length)
        ids = tl.load(blocks + token // BLOCK_SIZE, mask=held, other=0)
    else:
        ids = tl.load(blocks + token // BLOCK_SIZE)
    place = ids.to(tl.int64) * block_stride + token % BLOCK_SIZE * token_stride
    place = place[:, None] + column[None, :]
    if MASKED:
        inside = held[:, None] & (column < HEAD_DIM)[None, :]
        k = tl.load(keys + place, mask=inside, other=0)
        v = tl.load(values + place, mask=inside, other=0)
    elif HEAD_DIM != BLOCK_D:
        k = tl.load(keys + place, mask=(column < HEAD_DIM)[None, :], other=0)
        v = tl.load(values + place, mask=(column < HEAD_DIM)[None, :], other=0)
    else:
        k = tl.load(keys + place)
        v = tl.load(values + place)
    scores = tl.dot(q, tl.trans(decode(k, FORMAT, q.dtype)), input_precision="ieee")
    if FORMAT != PLAIN:
        scale_place = ids.to(tl.int64) * scale_block_stride
        scale_place += token % BLOCK_SIZE * scale_token_stride
        if MASKED:
            key_scale = tl.load(key_scales + scale_place, mask=held, other=0.0)
            value_scale = tl.load(value_scales + scale_place, mask=held, other=0.0)
        else:
            key_scale = tl.load(key_scales + scale_place)
            value_scale = tl.load(value_scales + scale_place)
        scores *= key_scale[None, :]
    if SOFTCAP:
        # cap * tanh(x / cap) in units of log2(e); the power may be infinite, and 2 / inf is 0.
        scores = cap - 2 * cap / (1 + tl.exp2(scores * scale))
    if MASKED:
        attended = (token[None, :] >= first[:, None]) & (token[None, :] < end[:, None])
        scores = tl.where(attended, scores, float("-inf"))
    unit = 1.0 if SOFTCAP else scale
    new_top = tl.maximum(top, tl.max(scores, 1) * unit)
    # A row that has attended to nothing yet stays at 0: its maximum is -inf.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top) if MASKED else new_top
    p = tl.exp2(scores * unit - shift[:, None])
    fade = tl.exp2(top - shift)
    total = total * fade + tl.sum(p, 1)
    acc = acc * fade[:, None]
    if FORMAT != PLAIN:
        p *= value_scale[None, :]
    v = decode(v, FORMAT, VALUE_TYPE)
    acc = tl.dot(p.to(VALUE_TYPE), v, acc, input_precision="ieee")
    return acc, new_top, total


@triton.jit
def _tile(
    queries, keys, values, key_scales, value_scales, output, tile, rows, firsts, ends, blocks,
    partial, lse, head, scale, cap, query_stride, query_head_stride,
    block_stride, token_stride, scale_block_stride, scale_token_stride,
    NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SOFTCAP: tl.constexpr,
    FORMAT: tl.constexpr, KEY_TYPE: tl.constexpr, VALUE_TYPE: tl.constexpr, IN_ORDER: tl.constexpr,
    MASKED_STAGES: tl.constexpr,
):  # fmt: skip
    first_query, num_queries = tl.load(tile), tl.load(tile + 1)
    start, length, slot = tl.load(tile + 3), tl.load(tile + 4), tl.load(tile + 5)
    blocks += tl.load(tile + 2)
    row = tl.arange(0, BLOCK_M)
    query, column = row // GROUP, tl.arange(0, BLOCK_D)
    real = query < num_queries
    query_row = tl.load(rows + first_query + query, mask=real, other=0).to(tl.int64)
    query_head = head * GROUP + row % GROUP
    inside = real[:, None] & (column < HEAD_DIM)[None, :]
    place = query_row * query_stride + query_head * query_head_stride
    q = tl.load(queries + place[:, None] + column[None, :], mask=inside, other=0).to(KEY_TYPE)
    # From here on tokens are counted from the tile's start.
    first = tl.load(firsts + first_query + query, mask=real, other=0) - start
    end = tl.load(ends + first_query + query, mask=real, other=0) - start
    end = tl.minimum(end, length)
    low = tl.load(firsts + first_query) - start
    whole_from = tl.maximum(tl.load(firsts + first_query + num_queries - 1) - start, 0)
    whole_to = tl.minimum(tl.load(ends + first_query) - start, length)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    # Spans from `head_spans` to `tail` are attended to as a whole by all queries.
    head_spans = tl.cdiv(whole_from, BLOCK_N)
    tail = tl.maximum(whole_to // BLOCK_N, head_spans)
    if IN_ORDER:  # then other queries do not decide by which of the loops a span is computed
        head_spans, tail = 0, 0
    for span in range(head_spans, tail):
        acc, top, total = _span(
            q, acc, top, total, span * BLOCK_N, first, end, low, length,
            keys, values, key_scales, value_scales, blocks, scale, cap,
            block_stride, token_stride, scale_block_stride, scale_token_stride,
            False, SOFTCAP, FORMAT, VALUE_TYPE, HEAD_DIM, BLOCK_D, BLOCK_SIZE, BLOCK_N,
        )  # fmt: skip
    for i in tl.range(0, tl.cdiv(length, BLOCK_N) - tail + head_spans, num_stages=MASKED_STAGES):
        span = tl.where(i < head_spans, i, i - head_spans + tail)
        acc, top, total = _span(
            q, acc, top, total, span * BLOCK_N, first, end, low, length,
            keys, values, key_scales, value_scales, blocks, scale, cap,
            block_stride, token_stride, scale_block_stride, scale_token_stride,
            True, SOFTCAP, FORMAT, VALUE_TYPE, HEAD_DIM, BLOCK_D, BLOCK_SIZE, BLOCK_N,
        )  # fmt: skip

    # A query that attends to none of the tile's tokens: its result is 0, and weighs nothing.
    total = tl.where(total == 0.0, 1.0, total)
    acc = acc * (1.0 / total)[:, None]
    if slot < 0:
        place = query_row * (NUM_HEADS * HEAD_DIM) + query_head * HEAD_DIM
        answer = acc.to(output.dtype.element_ty)
        tl.store(output + place[:, None] + column[None, :], answer, mask=inside)
    else:
        place = (slot + query).to(tl.int64) * NUM_HEADS + query_head
        tl.store(partial + place[:, None] * HEAD_DIM + column[None, :], acc, mask=inside)
        tl.store(lse + place, top + tl.log2(total), mask=real)


@triton.jit
def paged_attention_kernel(
    queries, keys, values, key_scales, value_scales, output, counts, tiles, rows, firsts, ends,
    blocks, partial, lse, scale, cap, query_stride, query_head_stride,
    block_stride, token_stride, head_stride,
    scale_block_stride, scale_token_stride, scale_head_stride,
    NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, SMALL_M: tl.constexpr, BLOCK_N: tl.constexpr,
    SOFTCAP: tl.constexpr, FORMAT: tl.constexpr, KEY_TYPE: tl.constexpr, VALUE_TYPE: tl.constexpr,
    IN_ORDER: tl.constexpr, MASKED_STAGES: tl.constexpr,
):  # fmt: skip
    # Programs that follow each other read the same tokens' heads, which are neighbours in memory.
    tile, head = tl.program_id(0) // NUM_KV_HEADS, tl.program_id(0) % NUM_KV_HEADS
    if tile >= tl.load(counts):
        return
    tiles += tile * 6
    keys += head * head_stride
    values += head * head_stride
    if FORMAT != PLAIN:
        key_scales += head * scale_head_stride
        value_scales += head * scale_head_stride
    small = tl.load(tiles + 1) * GROUP <= SMALL_M
    if small:
        if SMALL_M > 0:
            _tile(
                queries, keys, values, key_scales, value_scales, output, tiles, rows, firsts, ends,
                blocks, partial, lse, head, scale, cap, query_stride, query_head_stride,
                block_stride, token_stride, scale_block_stride, scale_token_stride,
                NUM_KV_HEADS * GROUP, GROUP, HEAD_DIM, BLOCK_D, BLOCK_SIZE, SMALL_M, BLOCK_N,
                SOFTCAP, FORMAT, KEY_TYPE, VALUE_TYPE, IN_ORDER, MASKED_STAGES,
            )  # fmt: skip
    else:
        _tile(
            queries, keys, values, key_scales, value_scales, output, tiles, rows, firsts, ends,
            blocks, partial, lse, head, scale, cap, query_stride, query_head_stride,
            block_stride, token_stride, scale_block_stride, scale_token_stride,
            NUM_KV_HEADS * GROUP, GROUP, HEAD_DIM, BLOCK_D, BLOCK_SIZE, BLOCK_M, BLOCK_N,
            SOFTCAP, FORMAT, KEY_TYPE, VALUE_TYPE, IN_ORDER, MASKED_STAGES,
        )  # fmt: skip


def _like(queries: Tensor, *_: object) -> Tensor:
    return torch.empty_like(queries, memory_format=torch.contiguous_format)


@operation(mutates_args=["partial", "lse"], fake=_like)
def paged_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    counts: Tensor,
    tiles: Tensor,
    rows: Tensor,
    firsts: Tensor,
    ends: Tensor,
    merge_queries: Tensor,
    merge_starts: Tensor,
    merge_slots: Tensor,
    blocks: Tensor,
    partial: Tensor,
    lse: Tensor,
    scale: float,
    softcap: float | None,
    most_tiles: int,
    most_merges: int,
    block_m: int,
    small_m: int,
    in_order: bool,
    arch: int,
) -> Tensor:
    """See `kernels.paged_attention.paged_attention`.

    Args:
        counts ... blocks, in_order: of `kernels.gpu.attention_plan.HostTilePlan`.
        partial: [slots, heads, head_dim], float32; what tiles leave of queries with several.
        lse: [slots, heads], float32, base 2.
        most_tiles, most_merges: how many are launched, at least as many as `counts` says.
        block_m, small_m: rows of tiles, and of those with few queries; 0 where there are none.
        arch: compute capability of the device, as 90; 0 if it is not NVIDIA's.
    """
    assert keys.stride() == values.stride(), "keys and values lie alike"
    if queries.stride(2) != 1:
        queries = queries.contiguous()
    output = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
    num_heads, head_dim = queries.shape[1:]
    block_size, num_kv_heads = keys.shape[1:3]
    config = launch_config(block_m, head_dim, keys.dtype, arch)
    numbers, key_type, value_type = product_types(queries.dtype, keys.dtype, arch)
    if numbers != PLAIN:
        keys, values = keys.view(torch.uint8), values.view(torch.uint8)
    scale_strides = (0, 0, 0) if key_scales is None else key_scales.stride()[:3]
    cap = 0.0 if softcap is None else softcap
    paged_attention_kernel[(most_tiles * num_kv_heads,)](
        queries, keys, values, key_scales, value_scales, output, counts, tiles, rows, firsts, ends,
        blocks, partial, lse,
        2 * _LOG2_E * scale / softcap if softcap is not None else _LOG2_E * scale, cap * _LOG2_E,
        queries.stride(0), queries.stride(1), *keys.stride()[:3], *scale_strides,
        NUM_KV_HEADS=num_kv_heads, GROUP=num_heads // num_kv_heads, HEAD_DIM=head_dim,
        BLOCK_D=max(_LEAST_DEPTH, triton.next_power_of_2(head_dim)),
        BLOCK_SIZE=block_size, BLOCK_M=block_m,
        SMALL_M=small_m, BLOCK_N=config.block_n, SOFTCAP=softcap is not None, FORMAT=numbers,
        KEY_TYPE=key_type, VALUE_TYPE=value_type, IN_ORDER=in_order,
        MASKED_STAGES=config.num_stages if in_order else 2,
        num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    if most_merges:
        merge_partials(
            output, counts, merge_queries, merge_starts, merge_slots, partial, lse, most_merges
        )
    return output
