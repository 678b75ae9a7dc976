"""Small requests for the scheduler, and steps whose tokens are chosen."""

from __future__ import annotations

from engine.batch import Batch, SampledToken
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.support.fake_device import Simulation, ids


def request(
    name: str,
    prompt: tuple[int, ...] | int,
    max_tokens: int = 4,
    priority: int = 0,
    **params: object,
) -> Request:
    """A request that goes on after eos ids; a number is a prompt of that length of its own."""
    if isinstance(prompt, int):
        begin = int.from_bytes(name.encode()) * 1000
        prompt = tuple(range(begin, begin + prompt))
    params.setdefault("ignore_eos", True)
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, **params), priority)  # type: ignore[arg-type]


def sizes(batch: Batch) -> dict[str, int]:
    return {s.request_id: len(s.token_ids) for s in batch.sequences}


def give(sim: Simulation, batch: Batch, **tokens: int) -> list[str]:
    """Retire a batch with chosen tokens; sequences that are not named get token 1."""
    sampled = [
        SampledToken(s.request_id, tokens.get(s.request_id, 1))
        for s in batch.sequences
        if s.samples
    ]
    return ids(sim.scheduler.retire(batch, sampled))
