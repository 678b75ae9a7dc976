"""Which parameters go together with beam search."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from engine.errors import RequestError

if TYPE_CHECKING:
    from engine.sampling_params import SamplingParams

MAX_BEAMS = 64
MAX_LENGTH_PENALTY = 10.0

# What a search obeys; and the seed, which every row has, and no search needs.
_OF_BEAMS = frozenset(
    {
        "early_stopping", "ignore_eos", "length_penalty", "max_tokens", "num_beams",
        "num_return_sequences", "seed", "stop_token_ids",
    }
)  # fmt: skip


def check_beam_params(params: SamplingParams) -> None:
    """Refuse values that no beam search can have, and what means nothing to one.

    Raises:
        RequestError: `invalid_parameter`.
    """
    width, penalty = params.num_beams, params.length_penalty
    if not 1 <= width <= MAX_BEAMS:
        raise _refusal("num_beams", f"num_beams is {width}; it must be from 1 to {MAX_BEAMS}")
    if not (math.isfinite(penalty) and abs(penalty) <= MAX_LENGTH_PENALTY):
        raise _refusal(
            "length_penalty",
            f"length_penalty is {penalty}; it must be from {-MAX_LENGTH_PENALTY:g} to "
            f"{MAX_LENGTH_PENALTY:g}",
        )
    if not isinstance(params.early_stopping, bool) and params.early_stopping != "never":
        raise _refusal(
            "early_stopping",
            f'early_stopping is {params.early_stopping!r}; it must be true, false or "never"',
        )
    if not 1 <= params.num_return_sequences <= width:
        raise _refusal(
            "n",
            f"n is {params.num_return_sequences}, but num_beams is {width}; a beam search gives at "
            "most as many answers as it has beams",
        )
    if width == 1:
        for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
            if getattr(params, name) != neutral:
                raise _refusal(name, f"{name} is for beam search; set num_beams over 1")
        return
    at_rest = type(params)()
    for field in fields(params):
        name = field.name
        if name not in _OF_BEAMS and getattr(params, name) != getattr(at_rest, name):
            if params.grammar is not None and name == "grammar":
                name = params.grammar.field  # what the row calls it
            raise _refusal(
                name,
                f"{name} does not go with beam search (num_beams is {width}); leave one out",
            )


def _refusal(field: str, message: str) -> RequestError:
    return RequestError("invalid_parameter", message, field)
