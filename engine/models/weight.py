"""The matrix of a linear layer, in the form that its products read."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.batch_invariant_linear import PanelMatrix, batch_invariant_linear


class Weight(nn.Module):
    """A matrix [out_features, in_features] that knows how to multiply."""

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """[rows, in_features] to [rows, out_features], of the dtype of `x`."""
        raise NotImplementedError

    def dense(self) -> Tensor:
        """The numbers, row by row; a copy where they are stored otherwise."""
        raise NotImplementedError


class DenseWeight(Weight):
    """As a checkpoint stores it; `dense()` is the storage, which a checkpoint may fill."""

    def __init__(self, values: nn.Parameter) -> None:
        super().__init__()
        self.values = values

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return functional.linear(x, self.values, bias)

    def dense(self) -> Tensor:
        return self.values


class PackedWeight(Weight):
    """In the tiles that oneDNN's products read, so that no product has to sort numbers first.

    A plain product packs the matrix anew in every call. Packed once, products of 8 to 512 rows
    take 0.2 to 0.9 times as long on a Zen 4 processor, where MKL's packing gains nothing; on an Ice
    Lake both gain alike. The tiles are the same for any number of rows.
    """

    values: Tensor

    def __init__(self, packed: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", packed, persistent=False)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return self._multiply(x, self.values, bias, "none", [], "")  # type: ignore[no-any-return]

    def dense(self) -> Tensor:
        return self.values.to_dense()


class BatchInvariantWeight(Weight):
    """Gives a row of products the same bits whatever other rows there are."""

    values: Tensor

    def __init__(self, matrix: PanelMatrix) -> None:
        super().__init__()
        self.register_buffer("values", matrix.panels, persistent=False)
        self._out_features = matrix.out_features

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return batch_invariant_linear(x, self._matrix, bias)

    def dense(self) -> Tensor:
        return self._matrix.dense()

    @property
    def _matrix(self) -> PanelMatrix:
        return PanelMatrix(self.values, self._out_features)


def packed(weight: Weight, batch_invariant: bool = False) -> Weight:
    """The same matrix as its device multiplies fastest; it can no longer be written to.

    Args:
        batch_invariant: as `BatchInvariantWeight` has it; a float32 matrix on a CPU.
    """
    values = weight.dense()
    if batch_invariant:
        return BatchInvariantWeight(PanelMatrix.of(values))
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return weight
    try:
        return PackedWeight(torch.ops.mkldnn._reorder_linear_weight(values, None))
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return weight
