"""Biases of logits by token: `logit_bias`, allowed and banned tokens in one addition.

What is banned has a bias of minus infinity, as in transformers' `SequenceBiasLogitsProcessor` and
`NoBadWordsLogitsProcessor`. One row of a table on the device serves all rows that ask the same.
"""

from __future__ import annotations

import torch

from kernels.gpu.library import find as find_gpu


def add_token_bias(
    scores: torch.Tensor, rows: torch.Tensor, table: torch.Tensor, slots: torch.Tensor
) -> None:
    """Add a row of the table to each of some rows, in place.

    Args:
        scores: [n, vocab_size], float32.
        rows: [m], int64, which rows of the scores, none twice.
        table: [slots, vocab_size], float32; no NaN and no plus infinity.
        slots: [m], int64, which row of the table each of them gets.
    """
    on_gpu = find_gpu("add_token_bias", scores.device)
    if on_gpu is not None:
        on_gpu(scores, rows, table, slots)
        return
    add_token_bias_reference(scores, rows, table, slots)


def add_token_bias_reference(
    scores: torch.Tensor, rows: torch.Tensor, table: torch.Tensor, slots: torch.Tensor
) -> None:
    """The specification of `add_token_bias`, of any device."""
    scores.index_add_(0, rows, table[slots])


def write_token_bias(
    table: torch.Tensor,
    slots: torch.Tensor,
    rest: torch.Tensor,
    entries: torch.Tensor,
    values: torch.Tensor,
) -> None:
    """Write rows of the table anew.

    Args:
        table: [slots, vocab_size], float32, contiguous.
        slots: [k], int64, which rows.
        rest: [k], float32, the bias of all tokens of a row that `entries` does not name.
        entries: [e], int64, row of the table times `vocab_size` plus token id, none twice.
        values: [e], float32, the bias of each of `entries`.
    """
    table.index_copy_(0, slots, rest[:, None].expand(-1, table.shape[-1]))
    table.view(-1).index_copy_(0, entries, values)
