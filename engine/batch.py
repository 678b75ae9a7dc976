"""The one thing that passes from the scheduler to the runner, and what comes back.

Plain data, without torch, so that the scheduler can be tested and simulated alone, and so
that a step can be planned while the device still runs the one before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from engine.blocks import BlockCopy
from engine.logit_rules import LogitRules, TokenHistory
from engine.prompt_work import PromptPiece, PromptWork
from engine.sampling_params import SamplingParams

PENDING = -1  # in place of a token that the step before samples


class ScheduledSequence(NamedTuple):
    """The part of one sequence that a step computes.

    A tuple, as a step makes hundreds: a frozen dataclass takes five times as long to make.

    Attributes:
        request_id: whose tokens these are.
        token_ids: the tokens to compute in this step. Of a sample that forks in this step
            there are none: it samples from the logits of the sequence before it, which computes
            the end of their prompt. `PENDING` alone where the step before this one samples the
            token for the same request, and was not retired when this one was planned.
        start: position of `token_ids[0]` in the sequence; positions before it are in the cache.
        block_table: physical block of each logical block, long enough for
            `start + len(token_ids)` tokens.
        samples: whether the step samples a token after the last of `token_ids` (false for
            all chunks of a prompt but its last).
        params: the sequence's sampling rules.
        sample_index: which of several samples of one prompt and seed this is.
        prompt: what is wanted of the prompt's positions, of other steps too; None for nothing.
        logit_rules: what is done to its logits; None where nothing is.
        history: all of its tokens, where there are such rules.
        candidates: how many of the likeliest tokens the scheduler wants to choose from itself;
            they come as the token's `logprobs`.
    """

    request_id: str
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    samples: bool
    params: SamplingParams
    sample_index: int = 0
    prompt: PromptWork | None = None
    logit_rules: LogitRules | None = None
    history: TokenHistory | None = None
    candidates: int = 0

    @property
    def end(self) -> int:
        """Tokens in the cache after the step; also the sampled token's position."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's work; never changed after it was planned.

    Attributes:
        step: counts the steps of a scheduler from 1.
        sequences: decodes first, then prompt chunks.
        swap_out: KV blocks to copy to host blocks, before anything else of the step: the copies
            below may write to their sources.
        copies: blocks to copy in all layers before anything is written; all sources are read
            before a target is written.
        swap_in: host blocks to copy to KV blocks, after those copies, which may read the
            targets, and before anything is computed.
    """

    step: int
    sequences: tuple[ScheduledSequence, ...]
    copies: tuple[BlockCopy, ...] = ()
    swap_out: tuple[BlockCopy, ...] = ()
    swap_in: tuple[BlockCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum([len(s.token_ids) for s in self.sequences])

    def __bool__(self) -> bool:
        return bool(self.sequences)


# The logits of a sequence are not finite: not one of its tokens can be trusted, nor what it reads.
NAN_LOGITS = "nan_logits"


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """Log probabilities of a sampled token and of the likeliest ones, as `kernels.logprobs` says.

    Kept for each token of all running sequences, so in arrays, not in an object a number.

    Attributes:
        values: float32, first that of the sampled token, then those of `top_ids`.
        top_ids: int32, the likeliest tokens, best first.
    """

    values: array[float]
    top_ids: array[int]


class SampledToken(NamedTuple):
    """What a step gave for one sequence that samples, or that wants something of its prompt.

    A tuple for the same reason as `ScheduledSequence`.

    Attributes:
        token_id: the token, or -1 where there is none.
        error_code: the token means nothing, and the sequence ends with this error, also if it
            does not sample in this step: `NAN_LOGITS`, or another of `errors.ROW_ERRORS`.
        logprobs: where the sequence asks for them and the token can be trusted.
        prompt: what it wants of its prompt; of a sequence that the step computed in pieces, each
            piece comes apart, in order.
    """

    request_id: str
    token_id: int
    error_code: str | None = None
    logprobs: SampledLogprobs | None = None
    prompt: PromptPiece | None = None


def by_request(
    sampled: Iterable[SampledToken],
) -> tuple[dict[str, SampledToken], dict[str, list[PromptPiece]]]:
    """By request: its last token, or the first that cannot be trusted; and its pieces in order."""
    tokens: dict[str, SampledToken] = {}
    pieces: dict[str, list[PromptPiece]] = {}
    for token in sampled:
        if token.prompt is not None:
            pieces.setdefault(token.request_id, []).append(token.prompt)
        known = tokens.setdefault(token.request_id, token)
        if known is not token and known.error_code is None:
            tokens[token.request_id] = token
    return tokens, pieces
