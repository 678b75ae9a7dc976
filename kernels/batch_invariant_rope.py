"""Cosines and sines of rotary position embedding that depend on the position alone, to the bit.

Torch's vectorized functions may round the last numbers of a tensor otherwise than the others, so
what a token gets could depend on how many tokens a step has.
"""

from __future__ import annotations

from ctypes import c_double, c_int64, c_void_p

import torch

from kernels.cpu.library import find

_ARGUMENTS = (c_void_p, c_void_p, c_double, c_void_p, c_void_p, c_int64, c_int64)


def batch_invariant_cos_sin(
    positions: torch.Tensor, inv_freq: torch.Tensor, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `kernels.rope.rope_cos_sin`, which is its reference; there must be C++ kernels.

    Args:
        positions: [num_tokens], int64, on the CPU.
        inv_freq: [head_dim / 2], float32.
        scale: what cosine and sine are multiplied by.

    Returns:
        cos and sin, each [num_tokens, 1, head_dim / 2], float32.
    """
    kernel = find("rope_cos_sin", *_ARGUMENTS)
    assert kernel is not None, "only the C++ kernels compute it"
    tokens, half = positions.shape[0], inv_freq.shape[0]
    cos, sin = inv_freq.new_empty(2, tokens, 1, half)
    pointers = cos.data_ptr(), sin.data_ptr()
    kernel(positions.data_ptr(), inv_freq.data_ptr(), scale, *pointers, tokens, half)
    return cos, sin
