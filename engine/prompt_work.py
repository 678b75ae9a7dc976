"""What is computed about the tokens of a prompt, piece by piece.

The output of a position is its hidden state, or the logits that predict the token after it. A
token that is taken from the prefix cache has none, so the cache may serve a sequence only up to
the first position whose output is wanted. A prompt is computed in chunks, and a chunk in
micro-batches where memory is short; so what is wanted is told in positions of the sequence, and
what was computed comes back in pieces.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

from engine.task import Pooling

# Hidden states are added up as whole numbers of so many a unit, in float64. Their sums are exact up
# to 2**53, which 8,192 tokens do not reach whose states stay under 256; each loses 2**-33 at most.
STATE_UNITS = 2.0**32


@dataclass(frozen=True, slots=True)
class PromptWork:
    """What is still wanted of the positions of one prompt.

    Attributes:
        tokens: the prompt; where it is scored, up to the last token, which is not computed.
        first: the first position whose output is wanted.
        logprobs: log probabilities of the tokens after these positions, and of so many of the
            likeliest ones; None where a vector is wanted.
        pooling: how the hidden states become a vector; None where log probabilities are wanted.
    """

    tokens: tuple[int, ...]
    first: int
    logprobs: int | None = None
    pooling: Pooling | None = None

    @property
    def end(self) -> int:
        """One past the last position whose output is wanted."""
        return len(self.tokens) - (self.pooling is None)

    def within(self, start: int, end: int) -> range:
        """The positions from `start` to `end` whose output is wanted."""
        return range(max(start, self.first), min(end, self.end))


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """What a step gave for some positions in a row.

    Attributes:
        end: one past the last of the positions.
        values: float32, [positions, 1 + k]: log probabilities of the token after each position,
            then of the k likeliest ones. Of pooling, float64, [hidden_size]: the sum of hidden
            states, times `STATE_UNITS`.
        top_ids: int32, [positions, k], the likeliest tokens, best first.
        is_greedy: whether the token after each position is the one that greedy sampling takes.
    """

    end: int
    values: array[float]
    top_ids: array[int]
    is_greedy: bool = False


class PromptProgress:
    """Collects the pieces of one prompt. They stay when the sequence is preempted.

    Attributes:
        work: what is still wanted.
    """

    __slots__ = ("pieces", "work")

    def __init__(self, work: PromptWork) -> None:
        self.work = work
        self.pieces: list[PromptPiece] = []

    @property
    def is_complete(self) -> bool:
        return self.work.first >= self.work.end

    def add(self, piece: PromptPiece) -> None:
        """Take the next piece; pieces come in the order of their positions."""
        self.pieces.append(piece)
        self.work = replace(self.work, first=piece.end)
