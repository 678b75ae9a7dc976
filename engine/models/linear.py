"""Parameters without initial values, and a linear layer that holds several matrices in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.models.weight import DenseWeight, Weight, packed


@dataclass(frozen=True, slots=True)
class NewParameter:
    """Makes parameters whose values a checkpoint will bring: `new(rows, columns)`."""

    dtype: torch.dtype
    device: torch.device

    def __call__(self, *shape: int) -> nn.Parameter:
        values = torch.empty(shape, dtype=self.dtype, device=self.device)
        return nn.Parameter(values, requires_grad=False)


class FusedLinear(nn.Module):
    """Matrices that read the same input, stacked, so that one product computes all.

    Args:
        in_features: width of the input.
        parts: name in the checkpoint and width of each output, in order.
        bias: whether each part has a bias.
    """

    def __init__(
        self, in_features: int, parts: Mapping[str, int], bias: bool, new: NewParameter
    ) -> None:
        super().__init__()
        self.parts = dict(parts)
        out_features = sum(self.parts.values())
        self.weight: Weight = DenseWeight(new(out_features, in_features))
        self.bias = new(out_features) if bias else None

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Names in a checkpoint, each with the rows of the fused tensor that it fills."""
        for kind, tensor in (("weight", self.weight.dense()), ("bias", self.bias)):
            if tensor is not None:
                rows = tensor.split_with_sizes(list(self.parts.values()))
                for name, part in zip(self.parts, rows, strict=True):
                    yield f"{name}.{kind}", part

    def pack(self, batch_invariant: bool = False) -> None:
        """See `Decoder.pack`."""
        self.weight = packed(self.weight, batch_invariant)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, in_features] to [rows, sum of the parts]."""
        return self.weight.multiply(x, self.bias)
