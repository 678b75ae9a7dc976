"""Choosing the next token of each row.

What a row asks of its logits (`LogitsProcessor`) comes first, then temperature, top-k, top-p and
min-p, in the order and with the meaning that transformers gives them. A sampled row takes the
first token whose cumulative probability, in the order of token ids, exceeds the row's random
number; that number depends on the row's seed, position and sample index alone, so a row's answer
does not depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from kernels.gpu.library import find as find_gpu
from kernels.gpu.library import serves
from kernels.greedy import NO_TOKEN, greedy_tokens
from kernels.host_tensors import floats, integers, to_device
from kernels.packed_sampling import PackedSampling
from kernels.philox import philox_uniform

NOTHING_LEFT = -2

# Changes scores [n, vocab_size], float32, in place, without waiting for the device; its n rows are
# those of `SamplingMetadata.order`.
LogitsProcessor = Callable[[torch.Tensor], None]

# Sorting a whole vocabulary costs ten times what its most likely thousand cost, and top-p
# seldom needs more. On a GPU, asking whether it did would make the host wait.
_CPU_CANDIDATES = 1024


class RowSampling(NamedTuple):
    """Sampling rules of one row; see `engine.sampling_params` for their meaning.

    A tuple, as a step makes hundreds: a frozen dataclass takes much longer to make.

    Attributes:
        processed: whether a processor changes the row's logits.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    position: int
    sample_index: int
    min_p: float = 0.0
    processed: bool = False


@dataclass(frozen=True, slots=True)
class SamplingMetadata:
    """The rows of a batch that do not simply take their likeliest token, on the device.

    Attributes:
        rows: [n], int64, which rows of the logits they are, at least one: first m sampled ones,
            then greedy ones whose logits are processed.
        order: the same on the host.
        temperatures: [m, 1], float32.
        uniforms: [m, 1], float64, each row's random number.
        filtered: [f], int64, which of the m rows have a top-k or a top-p; None where none.
        top_k: [f, 1], int64, at least 1 and at most the vocabulary.
        top_p: [f, 1], float64, over 1 where all tokens are kept.
        max_top_k: largest top-k that cuts anything, 0 where none does.
        min_p_rows: [p], int64, which of the m rows have a min-p; None where none.
        log_min_p: [p, 1], float32.
    """

    rows: torch.Tensor
    order: tuple[int, ...]
    temperatures: torch.Tensor
    uniforms: torch.Tensor
    filtered: torch.Tensor | None
    top_k: torch.Tensor
    top_p: torch.Tensor
    max_top_k: int
    min_p_rows: torch.Tensor | None
    log_min_p: torch.Tensor

    @classmethod
    def build(
        cls, rules: Sequence[RowSampling], vocab_size: int, device: torch.device
    ) -> SamplingMetadata | None:
        """None where all rows take their likeliest token."""
        order, count = _order(rules)
        if not order:
            return None
        sampled = [rules[i] for i in order[:count]]
        cuts = [0 < r.top_k < vocab_size for r in sampled]
        filtered = [i for i, r in enumerate(sampled) if cuts[i] or r.top_p < 1]
        with_min_p = [i for i, r in enumerate(sampled) if r.min_p > 0]
        uniforms = philox_uniform(
            integers([r.seed for r in sampled]),
            integers([r.position for r in sampled]),
            integers([r.sample_index for r in sampled]),
        )
        top_k = [sampled[i].top_k if cuts[i] else vocab_size for i in filtered]
        # Rounded probabilities may sum to more than 1; then a top-p of 1 must still keep all.
        top_p = [sampled[i].top_p if sampled[i].top_p < 1 else 2.0 for i in filtered]
        # A temperature below float32's range would divide by 0.
        smallest = torch.finfo(torch.float32).tiny
        return cls(
            rows=integers(order, device),
            order=tuple(order),
            temperatures=floats([max(r.temperature, smallest) for r in sampled], device)[:, None],
            uniforms=to_device(uniforms[:, None], device),
            filtered=integers(filtered, device) if filtered else None,
            top_k=integers(top_k, device)[:, None],
            top_p=floats(top_p, device, torch.float64)[:, None],
            max_top_k=max(
                (r.top_k for r, cut in zip(sampled, cuts, strict=True) if cut), default=0
            ),
            min_p_rows=integers(with_min_p, device) if with_min_p else None,
            log_min_p=floats([math.log(sampled[i].min_p) for i in with_min_p], device)[:, None],
        )


def sampling_rules(
    rules: Sequence[RowSampling], vocab_size: int, device: torch.device
) -> SamplingMetadata | PackedSampling | None:
    """What `sample` wants on a device; None where all rows take their likeliest token."""
    if not serves(device):
        return SamplingMetadata.build(rules, vocab_size, device)
    order, _ = _order(rules)
    return PackedSampling.build(rules, order, vocab_size, device) if order else None


def _order(rules: Sequence[RowSampling]) -> tuple[list[int], int]:
    """The rows that do not simply take their likeliest token; how many of them are sampled."""
    sampled = [i for i, rule in enumerate(rules) if rule.temperature > 0]
    greedy = [i for i, rule in enumerate(rules) if rule.processed and rule.temperature == 0]
    return sampled + greedy, len(sampled)


def sample(
    logits: torch.Tensor,
    metadata: SamplingMetadata | PackedSampling | None,
    processors: Sequence[LogitsProcessor] = (),
) -> torch.Tensor:
    """One token for each row. The logits are left as they are.

    Args:
        logits: [rows, vocab_size], any floating dtype.
        metadata: of `sampling_rules`; None where all rows take their likeliest token.
        processors: applied one after the other to a copy of the rows of `metadata`.

    Returns:
        [rows], int64. Greedy rows: the largest logit, of equal ones the lowest id. Rows
        with a logit that is not finite: `NO_TOKEN`. Rows to which the processors leave no
        token: `NOTHING_LEFT`.
    """
    tokens = greedy_tokens(logits)
    if metadata is None:
        return tokens
    if isinstance(metadata, PackedSampling):
        _sample_packed(tokens, logits, metadata, processors)
        return tokens
    scores = logits[metadata.rows].float()
    for process in processors:
        process(scores)
    peaks = scores.amax(-1)
    count = len(metadata.temperatures)
    drawn = scores[count:].argmax(-1)
    if count:
        drawn = torch.cat((_draw(_filter(scores[:count], metadata), metadata), drawn))
    drawn.masked_fill_(peaks == -torch.inf, NOTHING_LEFT)
    broken = (tokens[metadata.rows] == NO_TOKEN) | ~(peaks < torch.inf)
    tokens[metadata.rows] = drawn.masked_fill_(broken, NO_TOKEN)
    return tokens


def _sample_packed(
    tokens: torch.Tensor,
    logits: torch.Tensor,
    metadata: PackedSampling,
    processors: Sequence[LogitsProcessor],
) -> None:
    """Replace the tokens of the rows of `metadata`; only what is processed is copied."""
    sample_rows = find_gpu("sample_rows", logits.device)
    assert sample_rows is not None  # or else the rules would not have been packed
    if processors:
        logits = logits[metadata.rows].float()
        for process in processors:
            process(logits)
    sample_rows(tokens, logits, bool(processors), *metadata.rules())


def filtered_scores(logits: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """Logits of the sampled rows after temperature, top-k, top-p and min-p, in this order.

    Tokens that tie with the last one kept are kept too, so that no order among equal
    logits, which differs between devices, decides.

    Args:
        logits: [rows, vocab_size] of the whole batch; at least one row is sampled.

    Returns:
        [m, vocab_size], float32, the largest of each row 0, filtered tokens -inf.
    """
    return _filter(logits[metadata.rows[: len(metadata.temperatures)]].float(), metadata)


def _filter(scores: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """`filtered_scores` of [m, vocab_size], float32, in place."""
    # With the largest logit at 0, no temperature can overflow.
    scores.sub_(scores.amax(-1, keepdim=True)).div_(metadata.temperatures)
    if metadata.filtered is not None:
        chosen = scores[metadata.filtered]
        least = _least_kept_score(chosen, metadata)
        scores[metadata.filtered] = chosen.masked_fill_(chosen < least, -torch.inf)
    if metadata.min_p_rows is not None:
        # The likeliest token has score 0, so scores are logarithms of what min-p compares.
        chosen = scores[metadata.min_p_rows]
        chosen.masked_fill_(chosen < metadata.log_min_p, -torch.inf)
        scores[metadata.min_p_rows] = chosen
    return scores


def _draw(scores: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """[m], int64: a token of each row of filtered scores."""
    # In float64, or the tail of a large vocabulary would be rounded away.
    cumulative = scores.softmax(-1).cumsum(-1, dtype=torch.float64)
    target = metadata.uniforms * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1)


def _least_kept_score(scores: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """[f, 1]: top-k and top-p keep the scores from this one up."""
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
    # Of a row whose logits were processed, less than `width` tokens may be left.
    kept = (before < metadata.top_p) & (best >= least_of_k) & (best > -torch.inf)
    # A row of NaN keeps none; its answer is discarded, but an index of -1 would fail.
    last_kept = (kept.sum(-1, keepdim=True) - 1).clamp_(min=0)
    undecided = width < vocab_size and kept[:, -1].any()
    return best.gather(-1, last_kept), undecided
