"""Rounding to numbers of 8 bits in integer arithmetic: the same bits on every device.

Triton refuses e4m3 on sm_80 and sm_86, and before sm_90 it cuts off digits to float16 and rounds
only those, to e5m2 as well. What is stored is a small part of what these kernels move, so the few
integer operations more are not seen.
"""

import triton
import triton.language as tl


@triton.jit
def encode_fp8(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr):
    """Codes (uint8) of float32 numbers that the format can hold once they are rounded, or NaN.

    To the nearest number, of two equally near ones the even one.

    Args:
        MANTISSA: bits of the fraction: 3 of e4m3, 2 of e5m2.
        BIAS: of the exponent: 7 of e4m3, 15 of e5m2.
    """
    SHIFT: tl.constexpr = 23 - MANTISSA
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    # The carry of the rounding goes on into the exponent, where it belongs.
    rounded = magnitude + ((1 << (SHIFT - 1)) - 1) + ((magnitude >> SHIFT) & 1)
    normal = (rounded >> SHIFT) - ((127 - BIAS) << MANTISSA)
    # Subnormal numbers are whole multiples of 2^(1 - BIAS - MANTISSA), the distance of
    # neighbours of this power of two in float32: adding it rounds to them.
    shifted = magnitude.to(tl.float32, bitcast=True) + 2.0 ** (24 - BIAS - MANTISSA)
    subnormal = shifted.to(tl.int32, bitcast=True) - ((151 - BIAS - MANTISSA) << 23)
    code = tl.where(magnitude < ((128 - BIAS) << 23), subnormal, normal)
    code = tl.where(x != x, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
