"""What requests ask to be done to their logits, resolved against model and tokenizer.

Pure Python, without torch: the scheduler carries the rules from the engine to the runner.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from engine.errors import RequestError
from engine.sampling_params import MAX_BAD_WORD_TOKENS, SamplingParams

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Requests that ask for the same share what is made of it. Jobs have few kinds of rows.
_SHARED = 128


@dataclass(frozen=True, slots=True, eq=False)
class TokenBias:
    """What is added to a row's logits, whatever its tokens are; minus infinity bans a token.

    Attributes:
        rest: bias of the tokens that are not in `token_ids`.
        token_ids: int64, none twice.
        values: float32, the bias of each of them.
    """

    rest: float
    token_ids: array[int]
    values: array[float]


@dataclass(frozen=True, slots=True, eq=False)
class BannedSequences:
    """Sequences of two tokens or more that no row may complete.

    Attributes:
        sequences: at least one.
        longest: tokens of the longest of them.
    """

    sequences: tuple[tuple[int, ...], ...]
    longest: int


@dataclass(frozen=True, slots=True, eq=False)
class LogitRules:
    """The rules of one sequence. Each has an object of its own, by which its counts are found.

    Attributes:
        bias: None where no token has one.
        early_bias: the same while fewer than `min_tokens` tokens are generated: tokens that would
            end the answer are banned.
        banned: None where there are none.
    """

    bias: TokenBias | None
    early_bias: TokenBias | None
    banned: BannedSequences | None
    min_tokens: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float

    @property
    def penalizes(self) -> bool:
        """Whether it matters which tokens the sequence has already."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def bias_after(self, generated: int) -> TokenBias | None:
        """The bias of the next token when so many tokens are generated."""
        return self.early_bias if generated < self.min_tokens else self.bias


class TokenHistory(Protocol):
    """The tokens of one sequence. What `output_token_ids` has stays; more is added."""

    @property
    def prompt_token_ids(self) -> tuple[int, ...]: ...
    @property
    def output_token_ids(self) -> list[int]: ...


class LogitRuleBook:
    """Makes the rules of requests.

    Args:
        vocab_size: tokens of the model, those included that the tokenizer does not have.
        eos_token_ids: the model's own tokens that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos = frozenset(eos_token_ids)
        self._shared = lru_cache(maxsize=_SHARED)(self._resolve)

    def rules_of(self, params: SamplingParams) -> LogitRules | None:
        """The rules of one request; None where its logits stay as they are.

        Raises:
            RequestError: a token is not one of the model's, or no token is left to take.
        """
        resolved: tuple[TokenBias | None, TokenBias | None, BannedSequences | None]
        resolved = (None, None, None)
        # A row that asks for nothing is not even looked up.
        if (
            params.min_tokens
            or params.logit_bias
            or params.allowed_token_ids is not None
            or params.bad_words
            or params.bad_words_ids
        ):
            ending = None
            if params.min_tokens:
                ending = frozenset(params.stop_token_ids)
                ending |= frozenset() if params.ignore_eos else self._eos
            resolved = self._shared(
                params.logit_bias,
                params.allowed_token_ids,
                params.bad_words,
                params.bad_words_ids,
                ending,
            )
        rules = LogitRules(
            *resolved,
            params.min_tokens,
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
        )
        return rules if rules.penalizes or resolved != (None, None, None) else None

    def _resolve(
        self,
        logit_bias: tuple[tuple[int, float], ...],
        allowed: tuple[int, ...] | None,
        bad_words: tuple[str, ...],
        bad_words_ids: tuple[tuple[int, ...], ...],
        ending: frozenset[int] | None,
    ) -> tuple[TokenBias | None, TokenBias | None, BannedSequences | None]:
        self._check("logit_bias", (token for token, _ in logit_bias))
        self._check("allowed_token_ids", allowed or ())
        for word in bad_words_ids:
            self._check("bad_words_ids", word)
        sequences = {*bad_words_ids, *(s for word in bad_words for s in self._spellings(word))}
        banned = {sequence[0] for sequence in sequences if len(sequence) == 1}
        longer = tuple(sorted(s for s in sequences if len(s) > 1))
        bias = self._bias(logit_bias, allowed, banned, "bad_words")
        early = bias
        if ending is not None:
            reachable = {token for token in ending if token < self._vocab_size}
            early = self._bias(logit_bias, allowed, banned | reachable, "min_tokens")
        return (
            bias,
            early,
            BannedSequences(longer, max(map(len, longer))) if longer else None,
        )

    def _bias(
        self,
        logit_bias: tuple[tuple[int, float], ...],
        allowed: tuple[int, ...] | None,
        banned: set[int],
        banning: str,
    ) -> TokenBias | None:
        entries = dict(logit_bias)
        if allowed is None:
            rest = 0.0
            entries |= dict.fromkeys(banned, -math.inf)
            left = self._vocab_size - len(banned)
        else:
            rest = -math.inf
            entries = {token: entries.get(token, 0.0) for token in allowed if token not in banned}
            left = len(entries)
        if not left:
            raise RequestError(
                "invalid_parameter",
                f"no token is left to take: {banning} bans all that are allowed",
                "allowed_token_ids" if allowed is not None else banning,
            )
        if not entries and rest == 0:
            return None
        return TokenBias(rest, array("q", entries.keys()), array("f", entries.values()))

    def _spellings(self, word: str) -> set[tuple[int, ...]]:
        """The tokens of a word at the beginning of a text, and behind a space."""
        found = set()
        for text in dict.fromkeys((word, " " + word.lstrip(" "))):
            ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
            if not 0 < len(ids) <= MAX_BAD_WORD_TOKENS:
                raise RequestError(
                    "invalid_parameter",
                    f"bad_words has {word[:60]!r}, which is {len(ids)} tokens; a word must be 1 "
                    f"to {MAX_BAD_WORD_TOKENS}",
                    "bad_words",
                )
            self._check("bad_words", ids)
            found.add(ids)
        return found

    def _check(self, field: str, token_ids: Iterable[int]) -> None:
        strange = next((t for t in token_ids if t >= self._vocab_size), None)
        if strange is not None:
            raise RequestError(
                "invalid_parameter",
                f"{field} has token id {strange}; the model's are 0 to {self._vocab_size - 1}",
                field,
            )
