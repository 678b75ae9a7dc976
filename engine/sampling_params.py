"""What a request may ask of the sampler."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import RequestError

MAX_SEED = 2**63 - 1
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling and stopping rules of one request.

    Filters apply in the order temperature, top_k, top_p (as in transformers).

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches it, in (0, 1].
        seed: 0 to 2**63 - 1. A token's random number depends on (seed, sample index,
            position) only, never on the batch.
        stop: strings that end the text; the text is cut before the first one.
        stop_token_ids: token ids that end the text, beside the model's own eos ids.
        ignore_eos: go on after the model's eos ids (`stop_token_ids` still count).
        logprobs: None for none, 0 for those of the chosen tokens, k for the k likeliest tokens
            at each position too, at most `MAX_LOGPROBS`.
        prompt_logprobs: the same for the tokens of the prompt, from the second on. The prompt is
            computed for it even where the prefix cache has it.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise _refuse("max_tokens", self.max_tokens, "1 or more")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise _refuse("temperature", self.temperature, "a finite number, 0 or more")
        if self.top_k < 0:
            raise _refuse("top_k", self.top_k, "0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise _refuse("top_p", self.top_p, "over 0 and at most 1")
        if not 0 <= self.seed <= MAX_SEED:
            raise _refuse("seed", self.seed, "from 0 to 2**63 - 1")
        if any(not s for s in self.stop):
            raise _refuse("stop", list(self.stop), "strings that are not empty")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MAX_LOGPROBS:
                raise _refuse(name, value, f"from 0 to {MAX_LOGPROBS}")


def _refuse(field: str, value: object, allowed: str) -> RequestError:
    return RequestError("invalid_parameter", f"{field} is {value!r}; it must be {allowed}", field)
