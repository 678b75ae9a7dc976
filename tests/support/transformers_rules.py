"""The rules of a request, carried out by transformers' own logits processors.

What transformers does not have (presence and frequency penalties, allowed tokens without a
function) is written out here by its definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from engine.sampling_params import SamplingParams

Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class OpenAIPenalties(transformers.LogitsProcessor):  # type: ignore[misc]
    """Frequency and presence penalties as OpenAI's API defines them."""

    def __init__(self, prompt_length: int, frequency: float, presence: float) -> None:
        self._prompt_length = prompt_length
        self._frequency, self._presence = frequency, presence

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        for row, ids in zip(scores, input_ids[:, self._prompt_length :].tolist(), strict=True):
            for token, count in Counter(ids).items():
                row[token] -= count * self._frequency + self._presence
        return scores


def processors_of(
    params: SamplingParams, prompt_length: int, eos_token_ids: Sequence[int], vocab_size: int
) -> list[Processor]:
    """What changes logits before a token is taken, in the order of `generate`."""
    found: list[Any] = []
    if params.logit_bias:
        biases = [[[token], bias] for token, bias in params.logit_bias]
        found.append(transformers.SequenceBiasLogitsProcessor(biases))
    if params.repetition_penalty != 1:
        found.append(transformers.RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.bad_words_ids:
        words = [list(word) for word in params.bad_words_ids]
        # An id that is none keeps it from passing over banned end tokens.
        found.append(transformers.NoBadWordsLogitsProcessor(words, [vocab_size]))
    ending = [*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)]
    if params.min_tokens and ending:
        found.append(
            transformers.MinNewTokensLengthLogitsProcessor(prompt_length, params.min_tokens, ending)
        )
    if params.allowed_token_ids is not None:
        allowed = list(params.allowed_token_ids)
        found.append(
            transformers.PrefixConstrainedLogitsProcessor(lambda row, ids: allowed, num_beams=1)
        )
    if params.presence_penalty or params.frequency_penalty:
        found.append(
            OpenAIPenalties(prompt_length, params.frequency_penalty, params.presence_penalty)
        )
    return found


def warpers_of(params: SamplingParams) -> list[Processor]:
    """What sampled rows go through after that."""
    found: list[Any] = [transformers.TemperatureLogitsWarper(params.temperature)]
    if params.top_k:
        found.append(transformers.TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        found.append(transformers.TopPLogitsWarper(params.top_p))
    if params.min_p:
        found.append(transformers.MinPLogitsWarper(params.min_p))
    return found


def apply(
    processors: Sequence[Processor], token_ids: Sequence[int], logits: torch.Tensor
) -> torch.Tensor:
    """Scores [vocab_size] of the token that follows `token_ids`, of logits [vocab_size]."""
    scores = logits[None].float().clone()
    ids = torch.tensor([list(token_ids)])
    for process in processors:
        scores = process(ids, scores)
    return scores[0]
