"""What goes into the engine and what comes out of it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from engine.task import Task
from engine.task_params import check_task_params


class FinishReason(StrEnum):
    STOP = "stop"  # an eos id, a stop id or a stop string; a task that is done
    LENGTH = "length"  # max_tokens or the model's length
    ABORT = "abort"  # taken back by the caller
    ERROR = "error"  # see the output's error


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete, or to score or embed.

    Attributes:
        request_id: unique among the requests that are in the engine.
        token_ids: the prompt, at least one token.
        params: sampling and stopping rules.
        priority: higher runs first and is preempted last.
        sample_index: which of several samples of one prompt and seed this is: each has random
            numbers of its own.
        timeout: seconds that it may take, from when it is first computed; None for no limit.
        task: what to do instead of completing the prompt; nothing is sampled then, so `params`
            must be at rest.
        sample_of: what the samples of one prompt have in common; None for a request that is
            the only one. The prompt is computed for one of them, and the others share its blocks.

    Raises:
        RequestError: `invalid_parameter`, a parameter means nothing to the task.
    """

    request_id: str
    token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    sample_index: int = 0
    timeout: float | None = None
    task: Task | None = None
    sample_of: str | None = None

    def __post_init__(self) -> None:
        if self.task is not None:
            check_task_params(self.task, self.params)


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a position."""

    token_id: int
    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a generated token was.

    Attributes:
        token: the token's text by itself; special tokens by their name, and bytes that are no
            whole UTF-8 character as U+FFFD.
        bytes: what the token adds to the text; the bytes of all tokens together are the text
            before a stop string cut it (see `engine.token_texts`).
        logprob: natural logarithm of its probability under the model's own logits, before
            temperature and filters.
        top: the likeliest tokens, best first; empty where only the chosen one was asked for.
    """

    token_id: int
    token: str
    bytes: bytes
    logprob: float
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreOutput:
    """How likely a continuation is after its context.

    Attributes:
        logprob: natural logarithm of its probability, the sum over its tokens.
        token_logprobs: float32, of each of its tokens.
        is_greedy: whether it is what greedy sampling would have given.
    """

    logprob: float
    token_logprobs: array[float]
    is_greedy: bool


@dataclass(frozen=True, slots=True)
class BeamOutput:
    """One of the answers that beam search found.

    Attributes:
        token_ids, text, finish_reason: as those of a `RequestOutput`.
        score: sum of the tokens' log probabilities, divided by their number to the power of the
            request's length penalty.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    score: float


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The answer to one request.

    Attributes:
        token_ids: the generated tokens, the one that stopped it included.
        text: the tokens decoded without special tokens, cut before a stop string.
        prompt_tokens: length of the prompt; 0 where the request was refused.
        completion_tokens: generated tokens, those of all `beams` together.
        cached_tokens: prompt tokens that were not computed for this request: their KV was
            in the prefix cache when it was first admitted, or another sample's.
        error_code: with `FinishReason.ERROR`, what went wrong (`nan_logits`, …).
        logprobs: one entry for each of `token_ids`, those that a stop string cut from the text
            too; None where the request asks for none, or was refused.
        prompt_logprobs: one entry for each token of the prompt from the second on: nothing comes
            before the first. None where the request asks for none, or ended before all were
            computed.
        score: of a request with `Score`, unless it failed.
        embedding: of a request with `Embed`, unless it failed: [hidden_size], float32.
        beams: of a beam search that has ended, all answers that the request asks for, the best
            first; that one is the request's own `token_ids`, too.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    error_code: str | None = None
    error_message: str | None = None
    error_field: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    score: ScoreOutput | None = None
    embedding: array[float] | None = None
    beams: tuple[BeamOutput, ...] = ()

    @classmethod
    def without_answer(
        cls, request_id: str, code: str, message: str, field: str | None = None
    ) -> RequestOutput:
        """The end of a request of which nothing was computed, or nothing is left."""
        return cls(
            request_id=request_id,
            token_ids=(),
            text="",
            finish_reason=FinishReason.ERROR,
            prompt_tokens=0,
            cached_tokens=0,
            completion_tokens=0,
            error_code=code,
            error_message=message,
            error_field=field,
        )

    @classmethod
    def refused(cls, request_id: str, error: RequestError) -> RequestOutput:
        """The end of a request that cannot be served."""
        return cls.without_answer(request_id, error.code, str(error), error.field)
