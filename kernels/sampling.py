"""Choosing the next token of each row.

Filters apply in the order temperature, top-k, top-p, with the meaning that transformers
gives them. A sampled row takes the first token whose cumulative probability, in the order
of token ids, exceeds the row's random number; that number depends on the row's seed,
position and sample index alone, so a row's answer does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels.greedy import NO_TOKEN, greedy_tokens
from kernels.philox import philox_uniform

# Sorting a whole vocabulary costs ten times what its most likely thousand cost, and top-p
# seldom needs more. On a GPU, asking whether it did would make the host wait.
_CPU_CANDIDATES = 1024


@dataclass(frozen=True, slots=True)
class RowSampling:
    """Sampling rules of one row; see `engine.sampling_params` for their meaning."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    position: int
    sample_index: int


@dataclass(frozen=True, slots=True)
class SamplingMetadata:
    """The sampled rows of a batch, on the device; greedy rows need nothing.

    Attributes:
        rows: [n], int64, which rows of the logits are sampled, at least one.
        temperatures: [n, 1], float32.
        uniforms: [n, 1], float64, each row's random number.
        filtered: [m], int64, which of the n rows have a top-k or a top-p; None where none.
        top_k: [m, 1], int64, at least 1 and at most the vocabulary.
        top_p: [m, 1], float64, over 1 where all tokens are kept.
        max_top_k: largest top-k that cuts anything, 0 where none does.
    """

    rows: torch.Tensor
    temperatures: torch.Tensor
    uniforms: torch.Tensor
    filtered: torch.Tensor | None
    top_k: torch.Tensor
    top_p: torch.Tensor
    max_top_k: int

    @classmethod
    def build(
        cls, rules: Sequence[RowSampling], vocab_size: int, device: torch.device
    ) -> SamplingMetadata | None:
        """None where all rows are greedy."""
        rows = [i for i, rule in enumerate(rules) if rule.temperature > 0]
        if not rows:
            return None
        sampled = [rules[i] for i in rows]
        cuts = [0 < r.top_k < vocab_size for r in sampled]
        filtered = [i for i, r in enumerate(sampled) if cuts[i] or r.top_p < 1]
        integers = torch.tensor(
            [[r.seed, r.position, r.sample_index] for r in sampled], dtype=torch.int64
        ).reshape(-1, 3)
        uniforms = philox_uniform(*integers.unbind(-1))
        # A temperature below float32's range would divide by 0.
        smallest = torch.finfo(torch.float32).tiny
        return cls(
            rows=torch.tensor(rows, dtype=torch.int64).to(device, non_blocking=True),
            temperatures=_column([max(r.temperature, smallest) for r in sampled], device),
            uniforms=uniforms[:, None].to(device, non_blocking=True),
            filtered=_indices(filtered, device),
            top_k=torch.tensor(
                [[sampled[i].top_k if cuts[i] else vocab_size] for i in filtered],
                dtype=torch.int64,
            ).to(device, non_blocking=True),
            # Rounded probabilities may sum to more than 1; then a top-p of 1 must still keep all.
            top_p=_column(
                [sampled[i].top_p if sampled[i].top_p < 1 else 2.0 for i in filtered],
                device,
                torch.float64,
            ),
            max_top_k=max(
                (r.top_k for r, cut in zip(sampled, cuts, strict=True) if cut), default=0
            ),
        )


def sample(logits: torch.Tensor, metadata: SamplingMetadata | None) -> torch.Tensor:
    """One token for each row.

    Args:
        logits: [rows, vocab_size], any floating dtype.
        metadata: the rows' sampling rules; None where all are greedy.

    Returns:
        [rows], int64. Greedy rows: the largest logit, of equal ones the lowest id. Rows
        with a logit that is not finite: `NO_TOKEN`.
    """
    tokens = greedy_tokens(logits)
    if metadata is None:
        return tokens
    scores = filtered_scores(logits, metadata)
    # In float64, or the tail of a large vocabulary would be rounded away.
    cumulative = scores.softmax(-1).cumsum(-1, dtype=torch.float64)
    target = metadata.uniforms * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    tokens[metadata.rows] = drawn.masked_fill_(tokens[metadata.rows] == NO_TOKEN, NO_TOKEN)
    return tokens


def filtered_scores(logits: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """Logits of the sampled rows after temperature, top-k and top-p, in this order.

    Tokens that tie with the last one kept are kept too, so that no order among equal
    logits, which differs between devices, decides.

    Args:
        logits: [rows, vocab_size] of the whole batch; at least one row is sampled.

    Returns:
        [n, vocab_size], float32, the largest of each row 0, filtered tokens -inf.
    """
    scores = logits[metadata.rows].float()
    # With the largest logit at 0, no temperature can overflow.
    scores.sub_(scores.amax(-1, keepdim=True)).div_(metadata.temperatures)
    if metadata.filtered is not None:
        chosen = scores[metadata.filtered]
        least = _least_kept_score(chosen, metadata)
        scores[metadata.filtered] = chosen.masked_fill_(chosen < least, -torch.inf)
    return scores


def _least_kept_score(scores: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """[m, 1]: top-k and top-p keep the scores from this one up."""
    vocab_size = scores.shape[-1]
    if scores.is_cpu:
        width = max(_CPU_CANDIDATES, metadata.max_top_k + 1)
        if width < vocab_size:
            least, undecided = _least_among(scores, width, metadata)
            if not undecided:
                return least
    return _least_among(scores, vocab_size, metadata)[0]


def _least_among(
    scores: torch.Tensor, width: int, metadata: SamplingMetadata
) -> tuple[torch.Tensor, bool | torch.Tensor]:
    """The least kept of the `width` best scores, and whether top-p would keep more."""
    vocab_size = scores.shape[-1]
    best = scores.topk(width, dim=-1).values
    least_of_k = best.gather(-1, (metadata.top_k - 1).clamp(max=width - 1))
    least_of_k = least_of_k.masked_fill(metadata.top_k == vocab_size, -torch.inf)
    total = scores.masked_fill(scores < least_of_k, -torch.inf).logsumexp(-1, keepdim=True)
    probabilities = (best - total).double().exp_()
    # Top-p keeps a token while those before it have not reached p.
    before = probabilities.cumsum(-1).sub_(probabilities)
    kept = (before < metadata.top_p) & (best >= least_of_k)
    # A row of NaN keeps none; its answer is discarded, but an index of -1 would fail.
    last_kept = (kept.sum(-1, keepdim=True) - 1).clamp_(min=0)
    undecided = width < vocab_size and kept[:, -1].any()
    return best.gather(-1, last_kept), undecided


def _indices(values: list[int], device: torch.device) -> torch.Tensor | None:
    if not values:
        return None
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


def _column(
    values: list[float], device: torch.device, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)[:, None].to(device, non_blocking=True)
