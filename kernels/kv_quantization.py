"""Numbers of the KV cache in 8 bits: each head of each token has a scale of its own.

The scale maps the largest magnitude of the head to the largest number of the format, so nothing is
calibrated, no outlier of one token costs another its precision, and a token's bits do not depend
on what is computed with it.
"""

from __future__ import annotations

import torch

# Largest number of each format.
QUANTIZED = {
    torch.int8: 127.0,
    torch.float8_e4m3fn: 448.0,
    torch.float8_e5m2: 57344.0,
}


def smallest_peak(most: float) -> float:
    """Heads of smaller numbers are stored as zeros: their scale would be subnormal, or zero.

    Args:
        most: the largest number of the format.
    """
    return most * 2.0**-126


def scale_bytes(dtype: torch.dtype) -> int:
    """Of what stands beside a head of one token."""
    return torch.float32.itemsize if dtype in QUANTIZED else 0


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The specification of how keys and values are stored in 8 bits.

    Args:
        x: [..., head_dim], any floating dtype; rounded to the nearest number of the format, of two
            equally near ones the even one.
        dtype: one of `QUANTIZED`.

    Returns:
        The stored numbers, of the shape of `x`, and what they are to be multiplied by, [..., 1],
        float32. A head of zeros, and of what is next to them, has the scale 1. A head that is
        not finite has the scale NaN, so that nothing made of it passes for a number: an infinity
        would leave attention without a trace where the score is minus infinity.
    """
    most = QUANTIZED[dtype]
    wide = x.float()
    peak = wide.abs().amax(-1, keepdim=True)  # NaN where there is one
    scales = torch.where(peak < smallest_peak(most), torch.ones_like(peak), peak / most)
    scales = scales.where(peak.isfinite(), torch.nan)
    # Rounded to the format by hand: torch 2.11 gives NaN, not the largest, to what rounds beyond.
    scaled = (wide / scales).clamp_(-most, most)
    if dtype is torch.int8:
        scaled = scaled.nan_to_num_(nan=0.0).round_()
    return scaled.to(dtype), scales


def dequantize(stored: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float32, of the shape of `stored`; see `quantize`."""
    return stored.float() * scales
