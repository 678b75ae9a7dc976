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
    """For tiles of at most `block_m` rows; `arch` is the device's compute capability."""
    large_memory, width = arch in (90, 100, 103), triton.next_power_of_2(head_dim)
    quantized = kv_dtype.itemsize == 1
    if kv_dtype.itemsize == 4:
        config = LaunchConfig(32, 8, 3)
    elif block_m <= 32 and width > 128:
        config = LaunchConfig(32, 4, 7 if large_memory else 5)
    elif block_m <= 32:
        # With 4 warps it needs so many registers that some compilers rather spill.
        config = LaunchConfig(64, 8, 5)
    else:
        # Without wgmma, operands of products take registers, too.
        crowded = quantized or block_m * width > 64 * 128
        narrow = width * kv_dtype.itemsize > 256 or (crowded and not large_memory)
        config = LaunchConfig(32 if narrow else 64, 8, 5 if large_memory or width <= 128 else 3)
    if not arch:  # other vendors' devices hold in registers what is on its way
        block_n = 16 if quantized and block_m > 32 else config.block_n
        config = LaunchConfig(block_n, 4 if block_m <= 32 else 8, 2)
    return config


def architecture(device: torch.device) -> int:
    """Compute capability as one number, as 90; 0 where there is none."""
    if device.type == "cpu":
        return 0
    target = triton.runtime.driver.active.get_current_target()
    return int(target.arch) if target.backend == "cuda" else 0
