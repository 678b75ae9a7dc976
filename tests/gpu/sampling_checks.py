"""Sampled tokens against a draw in float64 on the host, with the same random numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.items import Item, Surroundings
from kernels.greedy import NO_TOKEN
from kernels.philox import philox_uniform
from kernels.sampling import RowSampling, SamplingMetadata, sample

GROUP = "sampling"
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bf16": torch.bfloat16}
_RULES: dict[str, dict[str, Any]] = {
    "temperature 1": {"temperature": 1.0},
    "temperature 0.01": {"temperature": 0.01},
    "top-k 1": {"top_k": 1},
    "top-k 50": {"top_k": 50},
    "top-p 0.9": {"top_p": 0.9},
    "top-p 0.1": {"top_p": 0.1},
    "min-p 0.05": {"min_p": 0.05},
    "top-k 200, top-p 0.7, min-p 0.01": {"top_k": 200, "top_p": 0.7, "min_p": 0.01},
}
# How far, of all probability, a draw may lie from the bounds of the token that came: sums of
# float32 over a vocabulary.
_NEAR = 1e-4


def items(dry: bool) -> list[Item]:
    found = []
    for name, dtype in _DTYPES.items():
        for vocab in (300,) if dry else (300, 49152, 128256, 151936):
            rows = 4 if dry else 64
            for rules_name, rules in _RULES.items():
                run = partial(_check, vocab, rows, dtype, [rules])
                found.append(Item(f"sampling {name}, {rules_name}, of {vocab}", GROUP, run))
            mixed = [*_RULES.values(), {"temperature": 0.0}]
            run = partial(_check, vocab, rows, dtype, mixed)
            found.append(Item(f"sampling {name}, all rules, of {vocab}", GROUP, run))
    return found


def _check(
    vocab: int, rows: int, dtype: torch.dtype, asked: list[dict[str, Any]], given: Surroundings
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(vocab)
    logits = (torch.randn(rows, vocab, generator=generator) * 3).to(dtype)
    logits[-1, 5] = torch.nan
    usual = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "sample_index": 0}
    rules = [
        RowSampling(**{**usual, **asked[i % len(asked)], "seed": 77 + i, "position": 3 * i})
        for i in range(rows)
    ]
    device = given.device.torch_device
    metadata = SamplingMetadata.build(rules, vocab, device)
    tokens = sample(logits.to(device), metadata).tolist()
    assert tokens[-1] == NO_TOKEN, "a row with NaN has a token"
    other, farthest = 0, 0.0
    for row, (rule, token) in enumerate(zip(rules[:-1], tokens[:-1], strict=True)):
        scores = logits[row].double()
        if rule.temperature == 0:
            assert token == int(scores.argmax()), f"row {row}: not the likeliest token"
            continue
        right, distance = _distance(scores, rule, token)
        other += token != right
        farthest = max(farthest, distance)
        assert distance <= _NEAR, (
            f"row {row}: {token} came, {right} is right, off by {distance:.3g}"
        )
    return {"tokens": rows - 1, "others_at_a_bound": other, "off_by": float(f"{farthest:.2g}")}


def _distance(scores: torch.Tensor, rule: RowSampling, token: int) -> tuple[int, float]:
    """The right token, and how far the draw lies from the bounds of the one that came."""
    kept = _filtered(scores, rule)
    probabilities = kept.softmax(-1)
    cumulative = probabilities.cumsum(-1)
    uniform = philox_uniform(
        *(torch.tensor([x]) for x in (rule.seed, rule.position, rule.sample_index))
    ).item()
    right = int(torch.searchsorted(cumulative, uniform * cumulative[-1], right=True))
    high = cumulative[token].item()
    low = high - probabilities[token].item()
    return right, max(0.0, low - uniform, uniform - high)


def _filtered(scores: torch.Tensor, rule: RowSampling) -> torch.Tensor:
    scores = (scores - scores.max()) / rule.temperature
    if rule.top_k:
        scores = scores.masked_fill(scores < scores.topk(rule.top_k).values[-1], -torch.inf)
    if rule.top_p < 1:
        ordered = scores.sort(descending=True).values
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        least = ordered[int((before < rule.top_p).sum()) - 1]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if rule.min_p:
        scores = scores.masked_fill(scores < math.log(rule.min_p), -torch.inf)
    return scores
