"""Rows of every kind of sampling, and what an engine answers to them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.core import Engine
from engine.request import Request
from engine.sampling_params import SamplingParams

SYSTEM = tuple(b"You are a helpful assistant who answers in few words. ")
Answer = tuple[object, ...]


def sampled_rows(number: int, most_tokens: int = 24, vocabulary: int = 256) -> list[Request]:
    """Requests of mixed lengths, most with a prefix in common, nearly all of them sampled."""
    draw = random.Random(5)
    rows = []
    for i in range(number):
        own = tuple(draw.randrange(vocabulary) for _ in range(draw.randint(1, 60)))
        params = SamplingParams(
            max_tokens=draw.randint(most_tokens // 2, most_tokens),
            temperature=draw.choice([0.0, 0.7, 1.0, 1.5]),
            top_k=draw.choice([0, 0, 5, 40]),
            top_p=draw.choice([1.0, 0.9, 0.5]),
            seed=draw.randrange(2**63),
            logprobs=draw.choice([None, None, 0, 3]),
        )
        prompt = own if i % 4 == 0 else SYSTEM + own
        rows.append(Request(f"row {i}", prompt, params, sample_index=i % 3))
    return rows


def answers(engine: Engine, rows: Sequence[Request], batch: int) -> dict[str, Answer]:
    """Tokens, their log probabilities and why each ended; `batch` rows at a time."""
    found: dict[str, Answer] = {}
    for at in range(0, len(rows), batch):
        for output in engine.generate(rows[at : at + batch]):
            assert output.error_code is None
            found[output.request_id] = (
                output.token_ids, output.text, output.finish_reason, output.logprobs
            )  # fmt: skip
    return found
