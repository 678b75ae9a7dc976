"""Numbers of the KV cache as matrix products take them.

The formats of 8 bits have no more digits than float16 and bfloat16, so nothing is rounded. Their
bits are set right by integer operations: converting integers runs at a quarter of the rate of
those, and float8 e4m3 is unknown to devices before sm_89.
"""

import torch
import triton
import triton.language as tl

PLAIN = tl.constexpr(0)
E4M3 = tl.constexpr(1)
E4M3_BY_HARDWARE = tl.constexpr(2)
E5M2 = tl.constexpr(3)
INT8 = tl.constexpr(4)

_FORMATS = {torch.float8_e4m3fn: E4M3, torch.float8_e5m2: E5M2, torch.int8: INT8}
_TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def product_types(
    queries: torch.dtype, kv: torch.dtype, arch: int
) -> tuple[tl.constexpr, tl.dtype, tl.dtype]:
    """The format of a cache's numbers, and the dtypes in which keys and values are multiplied."""
    if kv not in _FORMATS:
        both = _TYPES[queries if queries is kv else torch.float32]
        return PLAIN, both, both
    hardware = kv is torch.float8_e4m3fn and arch >= 89
    # Probabilities are multiplied by the scales of the values, which float16 might not hold.
    values = torch.bfloat16 if queries is torch.float16 else queries
    return E4M3_BY_HARDWARE if hardware else _FORMATS[kv], _TYPES[queries], _TYPES[values]


@triton.jit
def decode(x, FORMAT: tl.constexpr, TO: tl.constexpr):
    """Exactly `x` in the dtype `TO`; numbers of the formats of 8 bits are given as uint8.

    Codes that are not finite become numbers: the scale beside them is not finite then.
    """
    if FORMAT == PLAIN:
        return x.to(TO)
    if FORMAT == E4M3_BY_HARDWARE:
        return x.to(tl.float8e4nv, bitcast=True).to(TO)
    if tl.bfloat16 == TO:
        return _decode_to_bfloat16(x.to(tl.uint16), FORMAT)
    return _decode_to_float16(x.to(tl.uint16), FORMAT).to(TO)


@triton.jit
def _decode_to_float16(bits, FORMAT: tl.constexpr):
    if FORMAT == E4M3:
        # The exponent of float16 is biased by 8 more.
        number = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
    elif FORMAT == E5M2:
        number = (bits << 8).to(tl.float16, bitcast=True)
    else:
        # The float16 whose last digits are those of n is 1024 + n.
        number = ((bits ^ 0x80) | 0x6400).to(tl.float16, bitcast=True) - 1152.0
    return number


@triton.jit
def _decode_to_bfloat16(bits, FORMAT: tl.constexpr):
    if FORMAT == INT8:
        # The bfloat16 whose last digits are those of n is 128 + n; 256 with those of 128.
        number = ((bits & 0x7F) | 0x4300).to(tl.bfloat16, bitcast=True)
        number -= ((bits & 0x80) | 0x4300).to(tl.bfloat16, bitcast=True)
    else:
        # The exponent of bfloat16 is biased by 127, those of e4m3 and e5m2 by 7 and by 15.
        SHIFT: tl.constexpr = 4 if FORMAT == E4M3 else 5
        FACTOR: tl.constexpr = 2.0**120 if FORMAT == E4M3 else 2.0**112
        number = (((bits & 0x80) << 8) | ((bits & 0x7F) << SHIFT)).to(tl.bfloat16, bitcast=True)
        number *= tl.full([], FACTOR, tl.float32).to(tl.bfloat16)
    return number
