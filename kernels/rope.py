"""Rotary position embedding (Su et al., 2021, arXiv:2104.09864), in the layout of Llama.

Dimension `i` turns together with dimension `i + head_dim / 2` ("rotate half"), not with its
neighbour.
"""

from __future__ import annotations

import torch


def rope_cos_sin(
    positions: torch.Tensor, inv_freq: torch.Tensor, dtype: torch.dtype, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every token's angles.

    Angles are computed in float32 and only the results are rounded to `dtype`: at position
    8,000 a bfloat16 angle would be off by whole turns.

    Args:
        positions: [num_tokens], integers.
        inv_freq: [head_dim / 2], float32, radians a token.
        dtype: what `apply_rope` will compute in.
        scale: what cosine and sine are multiplied by; YaRN sharpens attention so.

    Returns:
        cos and sin, each [num_tokens, 1, head_dim / 2].
    """
    angles = (positions.float()[:, None] * inv_freq)[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    if scale != 1.0:
        cos, sin = cos.mul_(scale), sin.mul_(scale)
    return cos.to(dtype), sin.to(dtype)


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each head of each token by its position.

    Args:
        x: [num_tokens, num_heads, head_dim]; queries and keys may be rotated in one call.
        cos, sin: [num_tokens, 1, head_dim / 2], of the dtype of `x`.

    Returns:
        A new tensor of the shape and dtype of `x`.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
