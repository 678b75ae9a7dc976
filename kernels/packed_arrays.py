"""Arrays of the host that reach the device in one copy.

A step needs a dozen small arrays of numbers. Each copy costs the host some ten microseconds
however small it is, so all of them are laid one after the other and copied at once.
"""

from __future__ import annotations

import numpy as np
import torch

# Of each array's first byte: kernels may then load 16 bytes a lane.
_ALIGNMENT = 16


class PackedArrays:
    """Arrays in the order in which they are added, each with room for more numbers if wanted.

    Where an array begins depends on the capacities of those before it alone. So a CUDA graph that
    was captured with the tensors of one upload reads the numbers of every later upload into the
    same memory.

    Attributes:
        num_bytes: what `into` must hold at least.
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []
        self._capacities: list[int] = []
        self._starts: list[int] = []  # in bytes
        self.num_bytes = 0

    def add(self, array: np.ndarray, capacity: int | None = None) -> None:
        """Add a one-dimensional array, and room for `capacity` numbers in all.

        Raises:
            ValueError: there are more numbers than the capacity.
        """
        capacity = len(array) if capacity is None else capacity
        if len(array) > capacity:
            raise ValueError(f"{len(array)} numbers do not fit into a capacity of {capacity}")
        self._arrays.append(array)
        self._capacities.append(capacity)
        self._starts.append(self.num_bytes)
        end = self.num_bytes + capacity * array.itemsize
        self.num_bytes = -(-end // _ALIGNMENT) * _ALIGNMENT

    def upload(
        self, device: torch.device | str = "cpu", into: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Copy all arrays, up to the last number of the last one; nothing waits for the device.

        Args:
            into: [at least `num_bytes`], uint8, of the device; new memory where there is none.

        Returns:
            For each array a view [its capacity] of its dtype; what lies after its numbers is
            arbitrary.
        """
        device = torch.device(device)
        # Pinned memory is kept by torch until the copy is done.
        host = torch.empty(self.num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        numbers, used = host.numpy(), 0
        for array, start in zip(self._arrays, self._starts, strict=True):
            if len(array):
                used = start + array.nbytes
                numbers[start:used].view(array.dtype)[:] = array
        if into is not None:
            into[:used].copy_(host[:used], non_blocking=True)
        elif device.type == "cpu":
            into = host
        else:
            into = torch.empty(self.num_bytes, dtype=torch.uint8, device=device)
            into[:used].copy_(host[:used], non_blocking=True)
        return [
            into[start : start + capacity * array.itemsize].view(_torch_dtype(array))
            for array, start, capacity in zip(
                self._arrays, self._starts, self._capacities, strict=True
            )
        ]


def _torch_dtype(array: np.ndarray) -> torch.dtype:
    return torch.from_numpy(array[:0]).dtype
