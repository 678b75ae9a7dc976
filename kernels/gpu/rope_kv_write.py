"""Head norms, rotation and storing of a step's keys and values in one kernel.

The reference is in `kernels.rope_kv_write`. A program takes some heads of neighbouring tokens,
either of queries or of keys with their values: each number is read once and written once. A head
is held as two halves, as its dimension `i` turns together with `i + head_dim / 2`. How a head is
summed depends on its size alone, so its bits do not depend on what else is computed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gpu.fp8 import encode_fp8
from kernels.gpu.operation import operation
from kernels.kv_quantization import QUANTIZED, smallest_peak

# Numbers of half a head times heads of a program.
_TILE = 1024


@triton.jit
def _rounded(x, like):
    """To the dtype of the model, as the reference rounds each operation, and back to float32."""
    return x.to(like.dtype).to(tl.float32)


@triton.jit
def _normalized(first, second, weight, column, inside, eps, HEAD_DIM: tl.constexpr):
    """Halves of heads over their root mean square, times `weight`; float32 in and out."""
    mean_square = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / HEAD_DIM
    factor = tl.rsqrt(mean_square + eps)[:, None]
    weight_1 = tl.load(weight + column, mask=inside, other=0.0)
    weight_2 = tl.load(weight + column + HEAD_DIM // 2, mask=inside, other=0.0)
    first = _rounded(first * factor, weight_1) * weight_1.to(tl.float32)[None, :]
    second = _rounded(second * factor, weight_2) * weight_2.to(tl.float32)[None, :]
    return _rounded(first, weight_1), _rounded(second, weight_2)


@triton.jit
def _rotated(
    qkv, at, token, cos, sin, weight, column, inside, mask, eps,
    HEAD_DIM: tl.constexpr, NORMS: tl.constexpr,
):  # fmt: skip
    """Normalized and rotated halves of the heads that begin at `at`; float32."""
    HALF: tl.constexpr = HEAD_DIM // 2
    source = qkv + at[:, None] + column[None, :]
    raw = tl.load(source, mask=mask, other=0.0)
    first = raw.to(tl.float32)
    second = tl.load(source + HALF, mask=mask, other=0.0).to(tl.float32)
    if NORMS:
        first, second = _normalized(first, second, weight, column, inside, eps, HEAD_DIM)
    angle = token[:, None] * HALF + column[None, :]
    c = tl.load(cos + angle, mask=mask, other=0.0).to(tl.float32)
    s = tl.load(sin + angle, mask=mask, other=0.0).to(tl.float32)
    turned_1 = _rounded(first * c, raw) - _rounded(second * s, raw)
    turned_2 = _rounded(second * c, raw) + _rounded(first * s, raw)
    return _rounded(turned_1, raw), _rounded(turned_2, raw)


@triton.jit
def _code(x, FORMAT: tl.constexpr, MOST: tl.constexpr):
    """The stored bits of numbers that were divided by their scale."""
    x = tl.where(x > MOST, MOST, tl.where(x < -MOST, -MOST, x))  # leaves NaN alone
    if FORMAT == "int8":
        # Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to even.
        whole = (x + 12582912.0) - 12582912.0
        code = tl.where(x != x, 0.0, whole).to(tl.int8)
    elif FORMAT == "e4m3":
        code = encode_fp8(x, 3, 7)
    else:
        code = encode_fp8(x, 2, 15)
    return code


@triton.jit
def _store(
    first, second, numbers, scales, place, column, mask, stored,
    HEAD_DIM: tl.constexpr, FORMAT: tl.constexpr, MOST: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Store float32 halves as the heads number `place`, those of `stored` alone."""
    at = numbers + place[:, None] * HEAD_DIM + column[None, :]
    written = mask & stored[:, None]
    if FORMAT == "plain":
        tl.store(at, first.to(numbers.dtype.element_ty), mask=written)
        tl.store(at + HEAD_DIM // 2, second.to(numbers.dtype.element_ty), mask=written)
    else:
        # A maximum may pass NaN over; an infinity it keeps. Both end as the scale NaN.
        size_1 = tl.where(first == first, tl.abs(first), float("inf"))
        size_2 = tl.where(second == second, tl.abs(second), float("inf"))
        peak = tl.max(tl.maximum(size_1, size_2), axis=1)
        scale = tl.div_rn(peak, MOST)
        scale = tl.where(peak < SMALLEST, 1.0, scale)
        scale = tl.where(peak == float("inf"), float("nan"), scale)
        tl.store(scales + place, scale, mask=stored)
        divisor = tl.broadcast_to(scale[:, None], first.shape)
        tl.store(at, _code(tl.div_rn(first, divisor), FORMAT, MOST), mask=written)
        second_code = _code(tl.div_rn(second, divisor), FORMAT, MOST)
        tl.store(at + HEAD_DIM // 2, second_code, mask=written)


@triton.jit(do_not_specialize=["num_tokens", "query_programs"])
def rope_kv_write_kernel(
    qkv, cos, sin, query_norm, key_norm, slots, queries, keys, values, key_scales, value_scales,
    num_tokens, query_programs, row_stride, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, NORMS: tl.constexpr, FORMAT: tl.constexpr, MOST: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < HEAD_DIM // 2
    lane = tl.arange(0, ROWS)
    if program < query_programs:
        head = program.to(tl.int64) * ROWS + lane
        token = head // HEADS
        mask = (token < num_tokens)[:, None] & inside[None, :]
        at = token * row_stride + (head % HEADS) * HEAD_DIM
        first, second = _rotated(
            qkv, at, token, cos, sin, query_norm, column, inside, mask, eps, HEAD_DIM, NORMS
        )
        output = queries + head[:, None] * HEAD_DIM + column[None, :]
        tl.store(output, first.to(queries.dtype.element_ty), mask=mask)
        tl.store(output + HEAD_DIM // 2, second.to(queries.dtype.element_ty), mask=mask)
    else:
        head = (program - query_programs).to(tl.int64) * ROWS + lane
        token = head // KV_HEADS
        slot = tl.load(slots + token, mask=token < num_tokens, other=-1).to(tl.int64)
        stored = slot >= 0
        mask = stored[:, None] & inside[None, :]
        place = slot * KV_HEADS + head % KV_HEADS
        at = token * row_stride + (HEADS + head % KV_HEADS) * HEAD_DIM
        first, second = _rotated(
            qkv, at, token, cos, sin, key_norm, column, inside, mask, eps, HEAD_DIM, NORMS
        )
        source = qkv + (at + KV_HEADS * HEAD_DIM)[:, None] + column[None, :]
        value_1 = tl.load(source, mask=mask, other=0.0).to(tl.float32)
        value_2 = tl.load(source + HEAD_DIM // 2, mask=mask, other=0.0).to(tl.float32)
        if FORMAT == "plain":
            value_1 = value_1.to(values.dtype.element_ty).to(tl.float32)
            value_2 = value_2.to(values.dtype.element_ty).to(tl.float32)
        # A probability of 0 times a value that is NaN would be NaN; the score of a key is masked.
        finite = (tl.abs(value_1) < float("inf")) & (tl.abs(value_2) < float("inf"))
        sound = tl.min(finite.to(tl.int32), axis=1)[:, None] > 0
        first = tl.where(sound, first, float("nan"))
        second = tl.where(sound, second, float("nan"))
        _store(
            first, second, keys, key_scales, place, column, mask, stored,
            HEAD_DIM, FORMAT, MOST, SMALLEST,
        )  # fmt: skip
        _store(
            tl.where(sound, value_1, 0.0), tl.where(sound, value_2, 0.0), values, value_scales,
            place, column, mask, stored, HEAD_DIM, FORMAT, MOST, SMALLEST,
        )  # fmt: skip


_FORMATS = {torch.int8: "int8", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


def _queries(
    qkv: Tensor, cos: Tensor, sin: Tensor, query_norm: Tensor | None, key_norm: Tensor | None,
    eps: float, keys: Tensor, *_: object,
) -> Tensor:  # fmt: skip
    kv_heads, head_dim = keys.shape[2:]
    return qkv.new_empty((qkv.shape[0], qkv.shape[1] // head_dim - 2 * kv_heads, head_dim))


@operation(mutates_args=["keys", "values", "key_scales", "value_scales"], fake=_queries)
def rope_kv_write(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    query_norm: Tensor | None,
    key_norm: Tensor | None,
    eps: float,
    keys: Tensor,
    values: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    slots: Tensor,
) -> Tensor:
    """See `kernels.rope_kv_write.rope_kv_write`; the storage is token by token.

    Args:
        qkv: rows may be strided.
        query_norm, key_norm: both or none.
        slots: int32 or int64; nothing is stored of a token with a negative one.
    """
    queries = _queries(qkv, cos, sin, query_norm, key_norm, eps, keys)
    num_tokens, num_heads, head_dim = queries.shape
    if num_tokens == 0:
        return queries
    if qkv.stride(1) != 1:
        qkv = qkv.contiguous()
    kv_heads = keys.shape[2]
    stored, most = _FORMATS.get(keys.dtype, "plain"), QUANTIZED.get(keys.dtype, 1.0)
    if stored in ("e4m3", "e5m2"):  # their bits: Triton does not know all of them everywhere
        keys, values = keys.view(torch.uint8), values.view(torch.uint8)
    block = triton.next_power_of_2(head_dim // 2)
    rows = max(1, _TILE // block)
    query_programs = triton.cdiv(num_tokens * num_heads, rows)
    rope_kv_write_kernel[(query_programs + triton.cdiv(num_tokens * kv_heads, rows),)](
        qkv, cos.contiguous(), sin.contiguous(), query_norm, key_norm, slots, queries,
        keys, values, key_scales, value_scales, num_tokens, query_programs, qkv.stride(0), eps,
        HEADS=num_heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, BLOCK=block, ROWS=rows,
        NORMS=query_norm is not None, FORMAT=stored, MOST=most, SMALLEST=smallest_peak(most),
        num_warps=4,
        # Fused, a product would not be rounded before it is added to, as the reference does.
        enable_fp_fusion=False,
    )  # fmt: skip
    return queries
