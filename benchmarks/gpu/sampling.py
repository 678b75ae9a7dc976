"""Choosing tokens by each of the rules, and log probabilities, for steps of 256 rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.gpu.ceilings import by_bandwidth
from benchmarks.gpu.items import Item, Surroundings
from benchmarks.gpu.shapes import Shape, numbers, shapes
from kernels.logprobs import token_logprobs
from kernels.sampling import RowSampling, SamplingMetadata, sample

GROUP, ROWS = "sampling", 256
RULES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "top-k 50": {"top_k": 50},
    "top-p 0.9": {"top_p": 0.9},
    "min-p 0.05": {"min_p": 0.05},
    "top-k 50, top-p 0.9": {"top_k": 50, "top_p": 0.9},
}


def items(dry: bool) -> list[Item]:
    rows = 2 if dry else ROWS
    found = []
    for shape in shapes(dry):
        for name, rules in RULES.items():
            run = partial(_sample, shape, rows, rules)
            found.append(Item(f"sampling {name}, {ROWS} rows, {shape.name}", GROUP, run))
        for k in (0, 20):
            run = partial(_logprobs, shape, rows, k)
            found.append(Item(f"logprobs {k}, {ROWS} rows, {shape.name}", GROUP, run))
    return found


def _sample(shape: Shape, rows: int, asked: dict[str, Any], given: Surroundings) -> dict[str, Any]:
    """The floor is one pass over the logits."""
    logits = numbers(given.device, rows, shape.vocab)
    usual = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "sample_index": 0}
    rules = [RowSampling(**{**usual, **asked, "seed": i, "position": 9}) for i in range(rows)]
    metadata = SamplingMetadata.build(rules, shape.vocab, given.device.torch_device)
    times = given.device.times(lambda: sample(logits, metadata), nbytes=logits.nbytes)
    return by_bandwidth(times, logits.nbytes, given.known)


def _logprobs(shape: Shape, rows: int, k: int, given: Surroundings) -> dict[str, Any]:
    logits = numbers(given.device, rows, shape.vocab)
    tokens = logits.argmax(-1)
    times = given.device.times(lambda: token_logprobs(logits, tokens, k), nbytes=logits.nbytes)
    return by_bandwidth(times, logits.nbytes, given.known)
