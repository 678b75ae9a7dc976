"""What a request may want of its tokens other than that the model goes on with them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pooling(StrEnum):
    """How the hidden states of a text's tokens become one vector."""

    LAST = "last"  # that of the last token, which has seen all others
    MEAN = "mean"  # the mean over all tokens


@dataclass(frozen=True, slots=True)
class Score:
    """How likely the model finds the end of the request's tokens after their beginning.

    Attributes:
        context: how many of the request's tokens are the beginning; at least one, and one at
            least is left to be scored.
    """

    context: int


@dataclass(frozen=True, slots=True)
class Embed:
    """The request's tokens as one vector: hidden states after the final norm, pooled.

    Attributes:
        normalize: scale the vector to the length 1 (L2).
    """

    pooling: Pooling = Pooling.LAST
    normalize: bool = True


Task = Score | Embed
