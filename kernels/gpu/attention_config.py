"""How the attention kernel is launched: spans, warps and stages of its pipeline."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton


class LaunchConfig(NamedTuple):
    """Of a tile's kernel.

    Attributes:
        block_n: tokens of a span.
        num_warps: of a program.
        num_stages: spans that are on their way or being computed, so many less one ahead.
    """

    block_n: int
    num_warps: int
    num_stages: int


@functools.cache
def launch_config(block_m: int, head_dim: int, kv_dtype: torch.dtype, arch: int) -> LaunchConfig:
    """For tiles of at most `block_m` rows."""
    row_bytes = triton.next_power_of_2(head_dim) * max(kv_dtype.itemsize, 2)
    return LaunchConfig(64 if row_bytes <= 256 else 32, 4 if block_m <= 32 else 8, 5)


def architecture(device: torch.device) -> int:
    """Compute capability as one number, as 90; 0 where there is none."""
    if device.type == "cpu":
        return 0
    target = triton.runtime.driver.active.get_current_target()
    return int(target.arch) if target.backend == "cuda" else 0
