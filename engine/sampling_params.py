"""What a request may ask of the sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.beam_params import check_beam_params
from engine.errors import RequestError
from engine.grammar.spec import GrammarSpec

MAX_SEED = 2**63 - 1
MAX_LOGPROBS = 20
MAX_BIAS = 100.0
MAX_BIASED_TOKENS = 1024
MAX_ALLOWED_TOKENS = 65_536
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
LEAST_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_OPENAI_PENALTY = 2.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling and stopping rules of one request; docs/engine.md has their order.

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches it, in (0, 1].
        min_p: keep tokens at least this many times as likely as the likeliest one; 0 keeps all.
        seed: 0 to 2**63 - 1. A token's random number depends on (seed, sample index,
            position) only, never on the batch.
        repetition_penalty: logits of tokens of the prompt and of the answer are divided by it if
            positive, else multiplied (Keskar et al., 2019, arXiv:1909.05858); 1 changes nothing.
        presence_penalty: taken from the logits of tokens that the answer has, -2 to 2.
        frequency_penalty: taken from a token's logit as often as the answer has it, -2 to 2.
        logit_bias: (token id, what is added to its logit, -100 to 100); a later entry of the
            same id wins.
        allowed_token_ids: no other token is taken; None allows all.
        bad_words: texts whose last token is not taken where it would complete them.
        bad_words_ids: the same as token ids.
        min_tokens: tokens that end the answer are not taken before there are so many, and stop
            strings do not count; at most `max_tokens`.
        stop: strings that end the text; the text is cut before the first one.
        include_stop_str_in_output: cut the text behind the stop string instead.
        stop_token_ids: token ids that end the text, beside the model's own eos ids.
        ignore_eos: go on after the model's eos ids (`stop_token_ids` still count).
        logprobs: None for none, 0 for those of the chosen tokens, k for the k likeliest tokens
            at each position too, at most `MAX_LOGPROBS`. They are of the model's own logits.
        prompt_logprobs: the same for the tokens of the prompt, from the second on. The prompt is
            computed for it even where the prefix cache has it.
        num_beams: over 1, beam search of that width, as transformers' (see `engine.beam_search`).
        num_return_sequences: how many of the best beams are the answer.
        length_penalty: a beam's score is the sum of its log probabilities, divided by its
            length to this power: over 0 favours long answers.
        early_stopping: True ends the search as soon as `num_beams` answers are there; False
            when no running beam is better than they are, at its present length; "never" only
            when none can become better.
        grammar: what the text has to be; None for anything.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    grammar: GrammarSpec | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Of values as JSON has them: lists for tuples, one string for a list of one, biases as an
        object or as pairs, and a grammar as an object of its fields.

        Raises:
            RequestError: a value is out of its range.
        """
        found = {name: _frozen(value) for name, value in values.items() if name != "grammar"}
        if (grammar := values.get("grammar")) is not None:
            found["grammar"] = GrammarSpec.from_json(grammar)
        for name in ("stop", "bad_words"):
            if isinstance(found.get(name), str):
                found[name] = (found[name],)
        return cls(**found)

    def __post_init__(self) -> None:
        for name, (fits, allowed) in _LIMITS.items():
            value = getattr(self, name)
            if not fits(value):
                raise _refuse(name, value, allowed)
        if self.min_tokens > self.max_tokens:
            raise _refuse("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        check_beam_params(self)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((int(token), float(bias)) for token, bias in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value


def _refuse(field: str, value: object, allowed: str) -> RequestError:
    shown = repr(value)
    if len(shown) > 100:
        shown = f"{shown[:100]}…"
    return RequestError("invalid_parameter", f"{field} is {shown}; it must be {allowed}", field)


def _within(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: low <= value <= high  # not of NaN


def _fits_bias(pairs: tuple[tuple[int, float], ...]) -> bool:
    return len(pairs) <= MAX_BIASED_TOKENS and all(
        token >= 0 and -MAX_BIAS <= bias <= MAX_BIAS for token, bias in pairs
    )


def _fits_allowed(tokens: tuple[int, ...] | None) -> bool:
    return tokens is None or (0 < len(tokens) <= MAX_ALLOWED_TOKENS and min(tokens) >= 0)


def _fits_bad_words_ids(words: tuple[tuple[int, ...], ...]) -> bool:
    return len(words) <= MAX_BAD_WORDS and all(
        0 < len(word) <= MAX_BAD_WORD_TOKENS and min(word) >= 0 for word in words
    )


_OPENAI_PENALTY = (
    _within(-MAX_OPENAI_PENALTY, MAX_OPENAI_PENALTY),
    f"from -{MAX_OPENAI_PENALTY:g} to {MAX_OPENAI_PENALTY:g}",
)
_LOGPROBS = (
    lambda v: v is None or 0 <= v <= MAX_LOGPROBS,
    f"from 0 to {MAX_LOGPROBS}",
)
# By name: whether a value fits, and what it must be.
_LIMITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_tokens": (lambda v: v >= 1, "1 or more"),
    "temperature": (lambda v: math.isfinite(v) and v >= 0, "a finite number, 0 or more"),
    "top_k": (lambda v: v >= 0, "0 (all tokens) or more"),
    "top_p": (lambda v: 0 < v <= 1, "over 0 and at most 1"),
    "min_p": (_within(0, 1), "from 0 to 1"),
    "seed": (_within(0, MAX_SEED), "from 0 to 2**63 - 1"),
    "repetition_penalty": (
        _within(LEAST_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
        f"from {LEAST_REPETITION_PENALTY:g} to {MAX_REPETITION_PENALTY:g}",
    ),
    "presence_penalty": _OPENAI_PENALTY,
    "frequency_penalty": _OPENAI_PENALTY,
    "logit_bias": (
        _fits_bias,
        f"up to {MAX_BIASED_TOKENS} token ids, each with a bias from -{MAX_BIAS:g} to {MAX_BIAS:g}",
    ),
    "allowed_token_ids": (_fits_allowed, f"1 to {MAX_ALLOWED_TOKENS} token ids"),
    "bad_words": (
        lambda v: len(v) <= MAX_BAD_WORDS and all(v),
        f"up to {MAX_BAD_WORDS} strings that are not empty",
    ),
    "bad_words_ids": (
        _fits_bad_words_ids,
        f"up to {MAX_BAD_WORDS} lists, each of 1 to {MAX_BAD_WORD_TOKENS} token ids",
    ),
    "min_tokens": (lambda v: v >= 0, "0 or more"),
    "stop": (all, "strings that are not empty"),
    "stop_token_ids": (lambda v: all(token >= 0 for token in v), "token ids, 0 or more"),
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
}
