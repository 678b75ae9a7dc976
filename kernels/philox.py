"""Philox-4x32-10, a counter-based random number generator.

Salmon, Moraes, Dror and Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A
number is a pure function of its key and counter, so it does not depend on what else is
drawn, on the order or on the device.
"""

from __future__ import annotations

import torch

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox_4x32(counter: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Four random 32-bit words for each counter.

    Args:
        counter: [..., 4], int64, each a 32-bit word.
        key: [..., 2], int64, each a 32-bit word.

    Returns:
        [..., 4], int64, each uniform in [0, 2**32).
    """
    c0, c1, c2, c3 = counter.unbind(-1)
    k0, k1 = key.unbind(-1)
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(_MULTIPLIERS[0], c0)
        high1, low1 = _multiply(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return torch.stack((c0, c1, c2, c3), dim=-1)


def philox_uniform(
    seeds: torch.Tensor, positions: torch.Tensor, sample_indices: torch.Tensor
) -> torch.Tensor:
    """One float64 in [0, 1) for each row, with 53 random bits.

    Args:
        seeds: [rows], int64, the whole 64 bits are the key.
        positions: [rows], int64, below 2**32.
        sample_indices: [rows], int64, below 2**32.
    """
    key = torch.stack((seeds & _MASK, (seeds >> 32) & _MASK), dim=-1)
    unused = torch.zeros_like(positions)
    counter = torch.stack((positions, sample_indices, unused, unused), dim=-1)
    words = philox_4x32(counter, key)
    bits = ((words[..., 0] >> 5) << 26) | (words[..., 1] >> 6)
    return bits.double() * 2.0**-53


def _multiply(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 32 bits of the 64-bit product."""
    # int64 wraps modulo 2**64, so its bits are those of the unsigned product.
    product = b * a
    return (product >> 32) & _MASK, product & _MASK
