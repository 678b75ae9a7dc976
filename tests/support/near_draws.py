"""How near a token was to being another one, by the logits and the row's rules.

Float arithmetic moves a logit a little with the shape of the batch. A row may leave its other
answer only where such a little decides: at two logits that are nearly equal, or at a random number
near the bound between two tokens, or near where top-k or top-p cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from kernels.sampling import RowSampling, SamplingMetadata, filtered_scores
from tests.support.by_hand import ByHand

if TYPE_CHECKING:
    from engine.request import Request
    from engine.runner import Runner


def distance_to_another(logits: torch.Tensor, rule: RowSampling) -> float:
    """The least change that gives another token.

    Args:
        logits: [vocab_size], float32.

    Returns:
        Of a greedy row a difference of logits. Of a sampled one the least of a difference of
        scaled logits (top-k) and of probabilities (top-p, and the random number).
    """
    best = logits.double().sort(descending=True).values
    if rule.temperature == 0:
        return (best[0] - best[1]).item()
    metadata = SamplingMetadata.build([rule], len(logits), logits.device)
    assert metadata is not None
    cumulative = filtered_scores(logits[None], metadata)[0].double().softmax(-1).cumsum(-1)
    distances = [(cumulative[:-1] - metadata.uniforms[0]).abs().min()]
    scaled = best / rule.temperature
    if 0 < rule.top_k < len(scaled):
        distances.append(scaled[rule.top_k - 1] - scaled[rule.top_k])
        scaled = scaled[: rule.top_k]
    if rule.top_p < 1:
        distances.append((scaled.softmax(-1).cumsum(-1) - rule.top_p).abs().min())
    return min(distances).item()


def distances_where_they_part(
    runner: Runner,
    rows: Sequence[Request],
    one: Mapping[str, tuple[int, ...]],
    other: Mapping[str, tuple[int, ...]],
) -> dict[str, float]:
    """For each row with two different answers, the distance at the first token that differs.

    Args:
        runner: computes the logits there; `one` and `other` are tokens by request id.
    """
    found = {}
    for row in rows:
        ours, theirs = one[row.request_id], other[row.request_id]
        if ours == theirs:
            continue
        length = min(len(ours), len(theirs))
        at = next(i for i in range(length) if ours[i] != theirs[i])
        tokens = [*row.token_ids, *ours[:at]]
        hand = ByHand(runner)
        logits = runner.logits(hand.batch(hand.part("r", tokens, 0, len(tokens))))[0]
        params = row.params
        rule = RowSampling(
            params.temperature, params.top_k, params.top_p, params.seed, len(tokens),
            row.sample_index,
        )  # fmt: skip
        found[row.request_id] = distance_to_another(logits, rule)
    return found
