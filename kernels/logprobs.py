"""Log probabilities of chosen tokens, and the likeliest tokens of each row.

Of equally likely tokens the lowest id comes first, as in greedy sampling. Half-precision logits
tie often, so this decides which tokens are named at all, and no order of a device's own may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernels.gpu.library import find as find_gpu

# Logits at the two ends of float32 are further apart than float32 reaches.
_LEAST = torch.finfo(torch.float32).min
_MOST_OF_KERNEL = 256


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of probabilities under the logits as they are, computed in float32.

    Attributes:
        chosen: [rows], float32.
        top_ids: [rows, k], int64, best first; all tokens where the vocabulary is smaller.
        top: [rows, k], float32, those of `top_ids`.
    """

    chosen: torch.Tensor
    top_ids: torch.Tensor
    top: torch.Tensor


def token_logprobs(logits: torch.Tensor, tokens: torch.Tensor, k: int) -> TokenLogprobs:
    """Log probabilities of each row's token and of its k likeliest tokens.

    Beside the logits it needs, for each row, about 8 bytes a token of the vocabulary; the kernel of
    the GPU 8 KB a row.

    Args:
        logits: [rows, vocab_size], any floating dtype. A row that is not finite gives values
            without meaning and harms no other.
        tokens: [rows], int64; a negative one (no token) gives a value without meaning.
        k: 0 or more.
    """
    on_gpu = _kernel(logits, k)
    if on_gpu is not None:
        logprobs, ids = on_gpu(logits, tokens, k)
        return TokenLogprobs(logprobs[:, 0], ids[:, 1:], logprobs[:, 1:])
    scores = logits.float()
    peak = scores.amax(-1, keepdim=True)
    total = (scores - peak).exp_().sum(-1, keepdim=True).log_()
    # The chosen one and the best share their arithmetic, so that the same token has one value.
    ids = torch.cat((tokens[:, None].clamp(min=0), _likeliest(scores, k)), dim=-1)
    logprobs = (scores.gather(-1, ids) - peak - total).clamp_(min=_LEAST)
    return TokenLogprobs(logprobs[:, 0], ids[:, 1:], logprobs[:, 1:])


def _kernel(logits: torch.Tensor, k: int) -> Callable[..., tuple[torch.Tensor, ...]] | None:
    """The GPU's, where it serves: it takes the k tokens one after the other."""
    if k > _MOST_OF_KERNEL or logits.stride(-1) != 1:
        return None
    found: Callable[..., Any] | None = find_gpu("token_logprobs", logits.device)
    return found


def token_logprobs_reference(logits: torch.Tensor, tokens: torch.Tensor, k: int) -> TokenLogprobs:
    """The specification of `token_logprobs`."""
    logprobs = logits.float().log_softmax(-1).clamp_(min=_LEAST)
    ids = logits.float().sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return TokenLogprobs(
        logprobs.gather(-1, tokens[:, None]).squeeze(-1), ids, logprobs.gather(-1, ids)
    )


def _likeliest(scores: torch.Tensor, k: int) -> torch.Tensor:
    """[rows, k], int64: ids of the largest scores, of equal ones the lowest first."""
    k = min(k, scores.shape[-1])
    if k == 0:
        return torch.empty(len(scores), 0, dtype=torch.int64, device=scores.device)
    if k == scores.shape[-1] or not scores.is_cpu:
        return _likeliest_by_key(scores, k)
    # On a CPU the search by key costs three times as much, and asking whether ties make it
    # necessary is free.
    best = scores.topk(k + 1, dim=-1)
    ids = best.indices[:, :k].sort(-1).values
    order = scores.gather(-1, ids).sort(dim=-1, descending=True, stable=True).indices
    ids = ids.gather(-1, order)
    undecided = best.values[:, k - 1] == best.values[:, k]
    if undecided.any():
        ids[undecided] = _likeliest_by_key(scores[undecided], k)
    return ids


def _likeliest_by_key(scores: torch.Tensor, k: int) -> torch.Tensor:
    """The same by unique integers that sort as (score, -id) does."""
    # The bits of a float sort as integers once those of negative ones are turned round; adding
    # 0 makes -0 the 0 that it equals.
    bits = (scores + 0.0).view(torch.int32)
    bits = bits.bitwise_xor((bits >> 31) & 0x7FFFFFFF)
    ids = torch.arange(scores.shape[-1], device=scores.device)
    keys = (bits.long() << 32).sub_(ids).topk(k, dim=-1).values
    return keys.neg_().bitwise_and_(0xFFFFFFFF)
