"""Likeliest tokens on a device without a model, and what beam search finds with them."""

from __future__ import annotations

from array import array

from engine.batch import SampledLogprobs
from engine.beam_search import BeamSearch, Hypothesis
from engine.request import Request
from engine.scheduler_config import SchedulerConfig

VOCABULARY = 16


def digest(before: int, token_id: int) -> int:
    """A number for the whole prefix that ends at a token."""
    return hash((before, token_id))


def likeliest(last_digest: int, count: int) -> SampledLogprobs:
    """The likeliest tokens after a prefix; their scores are exact in float32, and many tie."""
    scores = {token: -(digest(last_digest, 100 + token) % 64) / 8 for token in range(VOCABULARY)}
    best = sorted(scores, key=lambda token: (-scores[token], token))[:count]
    return SampledLogprobs(array("f", [0.0, *(scores[t] for t in best)]), array("i", best))


def undisturbed_beams(request: Request, config: SchedulerConfig) -> list[Hypothesis]:
    """What the request finds when it is alone in the world."""
    prompt = 0
    for token_id in request.token_ids:
        prompt = digest(prompt, token_id)
    params = request.params
    stop = frozenset() if params.ignore_eos else config.eos_token_ids
    longest = min(params.max_tokens, config.max_model_len - len(request.token_ids))
    search = BeamSearch(params, stop.union(params.stop_token_ids), longest)
    while not search.done:
        ends = []
        for hypothesis in search.running:
            last = prompt
            for token_id in hypothesis.token_ids:
                last = digest(last, token_id)
            ends.append(last)
        search.advance([likeliest(last, search.num_candidates) for last in ends])
    return search.finished[: params.num_return_sequences]
