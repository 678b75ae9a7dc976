"""Beam search: which of the likeliest continuations go on, and when to stop.

The rules, and the arithmetic in float32, are those of transformers' `generate(num_beams=…,
do_sample=False)`: of the candidates of all beams together, the first `num_beams` may end an
answer, and the first `num_beams` that do not end go on. Pure Python, without torch or blocks.
"""

from __future__ import annotations

import ctypes
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from engine.batch import SampledLogprobs
from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Some generated tokens, and how good they are.

    Attributes:
        score: sum of the tokens' log probabilities, in float32; of one that has ended, divided
            by its length to the power of the length penalty.
    """

    token_ids: tuple[int, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One more token after a hypothesis.

    Attributes:
        beam: index of the hypothesis.
        score: sum of all log probabilities, this token's included.
    """

    beam: int
    token_id: int
    score: float


def candidates_per_beam(num_beams: int, num_stop_ids: int) -> int:
    """How many of a beam's likeliest tokens are looked at.

    So many that `num_beams` candidates are left when each beam's stop tokens are among them.
    """
    return max(2, 1 + num_stop_ids) * num_beams


class BeamSearch:
    """The state of one search. Ties go to the first beam, then to the lowest token id.

    Args:
        params: `num_beams`, `length_penalty` and `early_stopping` count.
        stop_token_ids: tokens that end an answer.
        max_tokens: most tokens of an answer.

    Attributes:
        running: what goes on, best first: at first one hypothesis without tokens, then always
            `num_beams` of equal length.
        finished: what has ended, best first, at most `num_beams`.
        done: whether the search is over; then `num_beams` have ended.
    """

    def __init__(
        self, params: SamplingParams, stop_token_ids: frozenset[int], max_tokens: int
    ) -> None:
        self._params = params
        self._width = params.num_beams
        self._stop = stop_token_ids
        self._max_tokens = max_tokens
        self.num_candidates = candidates_per_beam(params.num_beams, len(stop_token_ids))
        self.running = [Hypothesis((), 0.0)]
        self.finished: list[Hypothesis] = []
        self.done = False

    def advance(self, found: Sequence[SampledLogprobs]) -> list[Candidate]:
        """Go on by one token.

        Args:
            found: the likeliest tokens after each running hypothesis, `num_candidates` of them.

        Returns:
            What goes on, best first, for `running` as it was; nothing when the search is over.
        """
        length = len(self.running[0].token_ids) + 1
        at_end = length == self._max_tokens
        going_on: list[Candidate] = []
        for place, candidate in enumerate(self._best(found)):
            if at_end or candidate.token_id in self._stop:
                if place < self._width:
                    self._finish(candidate, length)
            elif len(going_on) < self._width:
                going_on.append(candidate)
            if place >= self._width - 1 and (at_end or len(going_on) == self._width):
                break
        self.done = at_end or self._is_over(going_on[0].score, length)
        if self.done:
            return []
        self.running = [self._extended(candidate, candidate.score) for candidate in going_on]
        return going_on

    def _best(self, found: Sequence[SampledLogprobs]) -> Iterator[Candidate]:
        """The best candidates of all beams together, the best first."""
        ranked = [
            _ranked(beam, hypothesis.score, logprobs)
            for beam, (hypothesis, logprobs) in enumerate(zip(self.running, found, strict=True))
        ]
        for score, beam, token_id in islice(heapq.merge(*ranked), self.num_candidates):
            yield Candidate(beam, token_id, -score)

    def _finish(self, candidate: Candidate, length: int) -> None:
        """Keep a candidate that ends, if it is among the best that have ended."""
        self.finished.append(self._extended(candidate, self._penalized(candidate.score, length)))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[self._width :]

    def _is_over(self, best_running: float, length: int) -> bool:
        """Whether no running hypothesis is expected to become one of the best."""
        early, penalty = self._params.early_stopping, self._params.length_penalty
        if len(self.finished) < self._width:
            return False
        if early is True:
            return True
        # With a penalty over 0 longer ones gain: "never" gives up only what is too bad even so.
        longest = self._max_tokens if early == "never" and penalty > 0 else length
        return self._penalized(best_running, longest) <= self.finished[-1].score

    def _penalized(self, score: float, length: int) -> float:
        return _float32(score / _float32(length**self._params.length_penalty))

    def _extended(self, candidate: Candidate, score: float) -> Hypothesis:
        before = self.running[candidate.beam].token_ids
        return Hypothesis((*before, candidate.token_id), score)


def _ranked(
    beam: int, before: float, logprobs: SampledLogprobs
) -> Iterator[tuple[float, int, int]]:
    """Negated scores with beam and token, ascending, as far as they are asked for.

    The likeliest tokens come first already, but equal scores have to be in the order of ids.
    """
    equal: list[tuple[float, int, int]] = []
    for token_id, score in zip(logprobs.top_ids, islice(logprobs.values, 1, None), strict=True):
        total = -_float32(score + before)
        if equal and equal[0][0] != total:
            yield from sorted(equal)
            equal = []
        equal.append((total, beam, token_id))
    yield from sorted(equal)


def _float32(number: float) -> float:
    """The nearest float32; infinite where there is none."""
    return ctypes.c_float(number).value
