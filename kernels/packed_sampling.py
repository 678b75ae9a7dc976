"""Sampling rules of a batch as the GPU's kernels read them: one number a row and rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.packed_arrays import PackedArrays

if TYPE_CHECKING:
    from kernels.sampling import RowSampling


@dataclass(frozen=True, slots=True)
class PackedSampling:
    """As `kernels.sampling.SamplingMetadata`, all of it [n] and sent in one copy.

    Attributes:
        order: which rows of the logits they are, on the host.
        rows: the same, int64.
        seeds, positions, sample_indices: int64, of the random numbers.
        temperatures: float32, 0 for greedy rows.
        top_k: int32, 0 where all tokens are kept.
        top_p: float64, 1 where all tokens are kept.
        log_min_p: float32, minus infinity where all tokens are kept.
    """

    order: tuple[int, ...]
    rows: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    sample_indices: torch.Tensor
    temperatures: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor

    @classmethod
    def build(
        cls,
        rules: Sequence[RowSampling],
        order: Sequence[int],
        vocab_size: int,
        device: torch.device,
    ) -> PackedSampling:
        """The rules of the rows of `order`, of which there is at least one."""
        chosen = [rules[i] for i in order]
        # A temperature below float32's range would divide by 0.
        smallest = np.finfo(np.float32).tiny
        packed = PackedArrays()
        for values, dtype in (
            (order, np.int64),
            ([r.seed for r in chosen], np.int64),
            ([r.position for r in chosen], np.int64),
            ([r.sample_index for r in chosen], np.int64),
            ([max(r.temperature, smallest) if r.temperature else 0 for r in chosen], np.float32),
            ([r.top_k if 0 < r.top_k < vocab_size else 0 for r in chosen], np.int32),
            ([min(r.top_p, 1) for r in chosen], np.float64),
            ([math.log(r.min_p) if r.min_p else -math.inf for r in chosen], np.float32),
        ):
            packed.add(np.array(values, dtype=dtype))
        return cls(tuple(order), *packed.upload(device))

    def rules(self) -> tuple[torch.Tensor, ...]:
        """In the order of the kernel's arguments."""
        return (
            self.rows, self.seeds, self.positions, self.sample_indices, self.temperatures,
            self.top_k, self.top_p, self.log_min_p,
        )  # fmt: skip
