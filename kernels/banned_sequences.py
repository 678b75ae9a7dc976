"""Sequences of tokens that no row may complete (bad words of several tokens).

A sequence's last token is banned where the tokens before it are the row's last ones, as in
transformers' `NoBadWordsLogitsProcessor`: the end of the prompt counts.
"""

from __future__ import annotations

import torch

ANY_TOKEN = -1  # before the beginning of a sequence
NO_TOKEN_MATCHES = -2  # in the place of a sequence that there is not
BEFORE_THE_PROMPT = -3


def ban_completions(
    scores: torch.Tensor,
    rows: torch.Tensor,
    tails: torch.Tensor,
    prefixes: torch.Tensor,
    last_tokens: torch.Tensor,
) -> None:
    """Set the score of tokens that would complete a sequence to minus infinity, in place.

    Args:
        scores: [n, vocab_size], float32, contiguous.
        rows: [m], int64, which rows of the scores.
        tails: [m, length], int32, the last tokens of each row, the newest last;
            `BEFORE_THE_PROMPT` where there are fewer.
        prefixes: [m, sequences, length], int32, each sequence without its last token, with
            `ANY_TOKEN` before it; all `NO_TOKEN_MATCHES` where a row has fewer sequences.
        last_tokens: [m, sequences], int64, below vocab_size.
    """
    matches = ((prefixes == tails[:, None]) | (prefixes == ANY_TOKEN)).all(-1)
    ceilings = torch.where(matches, -torch.inf, torch.inf).to(scores.dtype)
    places = rows[:, None] * scores.shape[-1] + last_tokens
    scores.view(-1).scatter_reduce_(0, places.view(-1), ceilings.view(-1), "amin")


def ban_completions_reference(
    scores: torch.Tensor, tokens: list[list[int]], sequences: list[list[tuple[int, ...]]]
) -> None:
    """The specification of `ban_completions`, for all tokens of each row and its sequences."""
    for row, (before, banned) in enumerate(zip(tokens, sequences, strict=True)):
        for *prefix, last in banned:
            if len(prefix) <= len(before) and before[len(before) - len(prefix) :] == prefix:
                scores[row, last] = -torch.inf
