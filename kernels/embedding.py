"""Rows taken from a matrix: the embeddings of tokens, and the rows that go on to the logits."""

from __future__ import annotations

import torch
from torch.nn import functional

from kernels.gpu.library import find as find_gpu


def embed(token_ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The embedding of each token.

    On a GPU a negative id, the padding of a captured step, gives zeros; nowhere else may there be
    one.

    Args:
        token_ids: [tokens], int32 or int64, below vocab_size.
        weight: [vocab_size, hidden_size].

    Returns:
        [tokens, hidden_size], a new tensor.
    """
    on_gpu = find_gpu("gather_rows", weight.device)
    return embed_reference(token_ids, weight) if on_gpu is None else on_gpu(weight, token_ids)


def embed_reference(token_ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The specification of `embed`, of any device and dtype."""
    return functional.embedding(token_ids, weight)


def select_rows(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Some rows of a matrix, in the order asked for.

    Args:
        x: [n, width].
        rows: [chosen], int32 or int64, below n; on a GPU negative ones give zeros.

    Returns:
        [chosen, width], a new tensor.
    """
    on_gpu = find_gpu("gather_rows", x.device)
    return select_rows_reference(x, rows) if on_gpu is None else on_gpu(x, rows)


def select_rows_reference(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The specification of `select_rows`, of any device and dtype."""
    return x.index_select(0, rows)
