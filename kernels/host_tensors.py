"""Numbers that the host has in lists, as tensors of the device; nothing waits for the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

_OF_NUMPY = {torch.int32: np.int32, torch.int64: np.int64}


def integers(
    values: Sequence[int] | Sequence[tuple[int, ...]],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.int64,
) -> torch.Tensor:
    """[len(values)], or [len(values), n] of tuples of n; int64 or int32.

    By way of numpy, which reads lists four times as fast.
    """
    return to_device(torch.from_numpy(np.array(values, dtype=_OF_NUMPY[dtype])), device)


def floats(
    values: Sequence[float], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """[len(values)], of a floating dtype."""
    return to_device(torch.tensor(values, dtype=dtype), device)


def to_device(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """A tensor of the host on a device; the host does not wait for what the device does before.

    It would where the memory is not page-locked, of all but small ones.
    """
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
