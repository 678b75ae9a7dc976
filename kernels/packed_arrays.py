"""Arrays of the host that reach the device in one copy.

A step needs a dozen small arrays of numbers. Each copy costs the host some ten microseconds
however small it is, so all of them are laid one after the other and copied at once.
"""

from __future__ import annotations

import numpy as np
import torch

# Of each array's first byte: kernels may then load 16 bytes a lane.
_ALIGNMENT = 16
# Bytes that are rather copied than passed over, which takes another copy: some ten microseconds of
# the host, in which 16 lanes of PCIe 4 bring a quarter of a megabyte.
_GAP = 1 << 18


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
        """Copy all arrays, in one copy but for large gaps; nothing waits for the device.

        Args:
            into: [at least `num_bytes`], uint8, of the device; new memory where there is none.

        Returns:
            For each array a view [its capacity] of its dtype; what lies after its numbers is
            arbitrary.
        """
        device = torch.device(device)
        # Pinned memory is kept by torch until the copy is done.
        host = torch.empty(self.num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        numbers = host.numpy()
        for array, start in zip(self._arrays, self._starts, strict=True):
            numbers[start : start + array.nbytes].view(array.dtype)[:] = array
        if into is None and device.type == "cpu":
            into = host
        else:
            if into is None:
                into = torch.empty(self.num_bytes, dtype=torch.uint8, device=device)
            for start, end in self._pieces():
                into[start:end].copy_(host[start:end], non_blocking=True)
        return [
            into[start : start + capacity * array.itemsize].view(_torch_dtype(array))
            for array, start, capacity in zip(
                self._arrays, self._starts, self._capacities, strict=True
            )
        ]

    def _pieces(self) -> list[tuple[int, int]]:
        """The bytes that hold numbers, with the small gaps between them."""
        pieces: list[tuple[int, int]] = []
        for array, start in zip(self._arrays, self._starts, strict=True):
            if not len(array):
                continue
            first = start
            if pieces and start - pieces[-1][1] <= _GAP:
                first = pieces.pop()[0]
            pieces.append((first, start + array.nbytes))
        return pieces


def _torch_dtype(array: np.ndarray) -> torch.dtype:
    return torch.from_numpy(array[:0]).dtype
