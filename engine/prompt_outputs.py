"""From the pieces of a prompt to what its request is answered with."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict

import numpy as np

from engine.batch import SampledLogprobs
from engine.prompt_work import STATE_UNITS, PromptPiece
from engine.request import FinishReason, ScoreOutput, TokenLogprob
from engine.sequence import Sequence as RunningSequence
from engine.task import Embed, Pooling, Score
from engine.token_texts import TokenTexts


class PromptAnswer(TypedDict, total=False):
    """The fields of a `RequestOutput` that come from its prompt."""

    prompt_logprobs: tuple[TokenLogprob, ...]
    score: ScoreOutput
    embedding: array[float]


def answer_of_prompt(sequence: RunningSequence, texts: TokenTexts) -> PromptAnswer:
    """What an ended sequence got of its prompt; nothing where it is not complete."""
    progress, task = sequence.prompt, sequence.request.task
    if progress is None or not progress.is_complete:
        return {}
    if task is None:
        logprobs = token_logprobs(progress.pieces)
        return {"prompt_logprobs": texts.describe_prompt(sequence.prompt_token_ids, logprobs)}
    if sequence.finish_reason is FinishReason.ERROR:
        return {}
    if isinstance(task, Score):
        return {"score": score_output(progress.pieces)}
    return {"embedding": embedding(progress.pieces, len(sequence.prompt_token_ids), task)}


def score_output(pieces: Iterable[PromptPiece]) -> ScoreOutput:
    """The score of a continuation; its log probabilities are added without rounding between."""
    values, is_greedy = array("f"), True
    for piece in pieces:
        values += piece.values
        is_greedy = is_greedy and piece.is_greedy
    return ScoreOutput(math.fsum(values), values, is_greedy)


def embedding(pieces: Sequence[PromptPiece], tokens: int, task: Embed) -> array[float]:
    """The pooled vector, [hidden_size], float32.

    Args:
        pieces: sums of hidden states; of one position where the last token is wanted. Nothing is
            rounded when they are added up (see `STATE_UNITS`).
        tokens: of the whole text.
    """
    vector = np.zeros(len(pieces[0].values), np.float64)
    for piece in pieces:
        vector += np.frombuffer(piece.values, np.float64)
    vector /= STATE_UNITS
    if task.pooling is Pooling.MEAN:
        vector /= tokens
    length = math.sqrt(math.fsum(vector * vector))
    if task.normalize and length > 0:
        vector /= length
    return array("f", vector.astype(np.float32).tobytes())


def token_logprobs(pieces: Iterable[PromptPiece]) -> Iterator[SampledLogprobs]:
    """Log probabilities of the prompt's tokens from the second on."""
    for piece in pieces:
        positions = len(piece.values) - len(piece.top_ids)
        k = len(piece.top_ids) // positions
        for at in range(positions):
            yield SampledLogprobs(
                piece.values[at * (1 + k) : (at + 1) * (1 + k)],
                piece.top_ids[at * k : (at + 1) * k],
            )
