"""The long life of an engine: thousands of requests of all kinds, and what becomes of them."""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression

import psutil
import torch

from engine.batch import Batch, SampledToken
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import RequestError
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams

POISON = 250  # a token that gives NaN
NUM_BLOCKS = 24
INSIDE = 40  # requests that are in the engine at once
PREFIXES = [tuple(range(n, n + length)) for n, length in ((1, 40), (60, 21), (90, 70), (1, 33))]
SAMPLES = 100  # of memory, in a life


def engine_of(folder: Path) -> Engine:
    """A small pool, so that requests make room for each other."""
    engine = Engine(
        EngineConfig(
            str(folder), num_blocks=NUM_BLOCKS, max_model_len=240, max_num_seqs=16,
            max_num_batched_tokens=64, threads=1,
        )
    )  # fmt: skip
    engine.loaded.model.embed_tokens[POISON] = torch.nan
    return engine


@dataclass
class Life:
    """What became of the requests.

    Attributes:
        memory: resident bytes of the process, by the number of requests that had come.
        blocks: blocks that Python's allocator has given out, likewise.
        refused: by error code, those that the engine did not take.
        ended: by finish reason or error code, those with an answer.
    """

    memory: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    aborted: int = 0

    @property
    def requests(self) -> int:
        return self.refused.total() + self.ended.total() + self.aborted


def growth(samples: dict[int, int]) -> float:
    """How much is added with each request, once the first third of them is through."""
    late = list(samples.items())[len(samples) // 3 :]
    return linear_regression([n for n, _ in late], [used for _, used in late]).slope


def live(engine: Engine, count: int, seed: int = 0) -> Life:
    """Let so many requests come, at random and some of them to fail; check on the way."""
    life, chance, process = Life(), random.Random(seed), psutil.Process()
    gc.collect()
    gc.freeze()  # what was there before need not be looked through with every sample
    inside: set[str] = set()
    _run_out_of_memory_now_and_then(engine, chance)
    coming, come, steps = _requests(chance), 0, 0
    while come < count or engine.has_unfinished:
        while come < count and len(inside) < INSIDE:
            request = next(coming)
            come += 1
            if come % (count // SAMPLES) == 0:
                gc.collect()
                life.memory[come] = process.memory_info().rss
                life.blocks[come] = sys.getallocatedblocks()
            try:
                engine.add(request)
            except RequestError as error:
                life.refused[error.code] += 1
            else:
                inside.add(request.request_id)
        if chance.random() < 0.02:
            taken = chance.choice(sorted(inside))
            engine.abort(taken)
            inside.remove(taken)
            life.aborted += 1
        for output in engine.step():
            inside.remove(output.request_id)  # once, and not after it was taken back
            is_error = output.finish_reason is FinishReason.ERROR
            life.ended[output.error_code or "" if is_error else output.finish_reason] += 1
        steps += 1
        if steps % 50 == 0:
            engine.scheduler.check_invariants()
    gc.unfreeze()
    assert not inside
    engine.scheduler.check_invariants()
    return life


def _requests(chance: random.Random) -> Iterator[Request]:
    number = 0
    while True:
        prompt = _prompt(chance)
        params = SamplingParams(
            max_tokens=chance.choice((1, 1, 2, 3, 3, 8, 60)),
            temperature=chance.choice((0.0, 0.0, 1.5)),
            seed=number,
            stop=chance.choice(((), (), ("e", "never"))),
            stop_token_ids=chance.choice(((), (7, 8, 9))),
            ignore_eos=chance.random() < 0.4,
            logprobs=chance.choice((None, None, None, 2)),
        )
        timeout = chance.choice((None, 3600.0, 3600.0, 1e-9))
        priority = chance.choice((0, 0, 1, -1))
        for sample in range(chance.choice((1, 1, 1, 3))):
            yield Request(f"r{number}:{sample}", prompt, params, priority, sample, timeout)
        number += 1


def _prompt(chance: random.Random) -> tuple[int, ...]:
    tail = tuple(chance.choices(range(200), k=chance.choice((1, 2, 5, 20))))
    kind = chance.random()
    if kind < 0.01:
        return ()
    if kind < 0.02:
        return (1,) * 300  # longer than the model
    if kind < 0.04:
        return (*chance.choice(PREFIXES), POISON, *tail)
    return tail if kind < 0.3 else chance.choice(PREFIXES) + tail


def _run_out_of_memory_now_and_then(engine: Engine, chance: random.Random) -> None:
    execute = engine.runner.execute

    def limited(batch: Batch) -> list[SampledToken]:
        tokens = execute(batch)
        if chance.random() < 0.002:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return tokens

    engine.runner.execute = limited  # type: ignore[method-assign]
