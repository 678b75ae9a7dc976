"""What a beam search says to the outside: its answer, and why it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.beam_group import BeamGroup
from engine.detokenizer import decode
from engine.errors import RequestError
from engine.request import BeamOutput, RequestOutput
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_vocabulary(params: SamplingParams, num_eos_ids: int, vocab_size: int) -> None:
    """Refuse a search that would not find enough tokens to go on with.

    Raises:
        RequestError: `too_many_beams`.
    """
    num_stops = num_eos_ids + len(params.stop_token_ids)
    if params.num_beams + num_stops > vocab_size:
        raise RequestError(
            "too_many_beams",
            f"num_beams is {params.num_beams}, but the model has only {vocab_size} tokens, of "
            f"which {num_stops} end an answer; ask for fewer beams",
            "num_beams",
        )


def beam_output(group: BeamGroup, tokenizer: Tokenizer) -> RequestOutput:
    """The output of a search that is done."""
    beams = tuple(
        BeamOutput(answer.token_ids, decode(tokenizer, answer.token_ids), reason, answer.score)
        for answer, reason in group.answers()
    )
    best = beams[0]
    return RequestOutput(
        request_id=group.request_id,
        token_ids=best.token_ids,
        text=best.text,
        finish_reason=best.finish_reason,
        prompt_tokens=len(group.prompt_token_ids),
        cached_tokens=group.cached_tokens,
        completion_tokens=sum(len(beam.token_ids) for beam in beams),
        beams=beams,
    )
