"""Short lists of the host as tensors on the device, without waiting for it."""

from __future__ import annotations

import torch


def integers(values: list[int] | list[tuple[int, int]], device: torch.device) -> torch.Tensor:
    """[values] or [values, 2], int64."""
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


def floats(values: list[float], device: torch.device) -> torch.Tensor:
    """[values], float32."""
    return torch.tensor(values, dtype=torch.float32).to(device, non_blocking=True)
