"""Parameters without initial values, and a linear layer that holds several matrices in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


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
        self.weight = new(out_features, in_features)
        self.bias = new(out_features) if bias else None

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Names in a checkpoint, each with the rows of the fused tensor that it fills."""
        for kind in ("weight", "bias"):
            tensor = getattr(self, kind)
            if tensor is not None:
                rows = tensor.split(list(self.parts.values()))
                for name, part in zip(self.parts, rows, strict=True):
                    yield f"{name}.{kind}", part

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] to [..., sum of the parts]."""
        return functional.linear(x, self.weight, self.bias)
