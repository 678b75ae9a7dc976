"""What an H200 is to reach, and whether it did; kept with the figures of every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.gpu.attention import (
    DECODE_TARGETS,
    PREFILL_TARGETS,
    decode_name,
    prefill_name,
)
from benchmarks.gpu.cascade import TARGET, cascade_name
from benchmarks.gpu.items import PASSED, Outcome
from benchmarks.gpu.peers import METHODS, peer_name
from benchmarks.gpu.shapes import LLAMA, QWEN
from benchmarks.gpu.throughput import engine_name


class Target(NamedTuple):
    """At least so much of a figure of an item."""

    item: str
    figure: str
    least: float


def targets() -> Iterator[Target]:
    for shape in (LLAMA, QWEN):
        for batch, context in DECODE_TARGETS:
            yield Target(decode_name("bf16", batch, context, shape), "of_copy", 0.9)
        for kind in PREFILL_TARGETS:
            yield Target(prefill_name(kind, shape), "of_matmul", 0.6)
    yield Target(cascade_name(*TARGET), "gain", 8.0)
    yield Target(engine_name("graphs, overlapped", LLAMA), "gpu_busy", 0.95)


def judge(outcomes: Mapping[str, Outcome], dry: bool) -> dict[str, Any]:
    """Each target with what was measured, and how much faster than transformers the engine is."""
    found = {}
    for target in targets():
        value = _figure(outcomes, target.item, target.figure)
        if value is None or dry:
            reached: bool | str = "not measured"
        else:
            reached = value >= target.least
        found[f"{target.item}: {target.figure}"] = {
            "least": target.least, "measured": value, "reached": reached,
        }  # fmt: skip
    ratios = {} if dry else dict(_ratios(outcomes))
    return {"targets": found, "times_as_fast_as_transformers": ratios}


def _ratios(outcomes: Mapping[str, Outcome]) -> Iterator[tuple[str, float]]:
    for shape in (LLAMA, QWEN):
        ours = _figure(outcomes, engine_name("graphs, overlapped", shape), "tokens_per_s")
        for method in METHODS:
            theirs = _figure(outcomes, peer_name(method, shape), "tokens_per_s")
            if ours and theirs:
                yield f"{shape.name}, {method}", round(ours / theirs, 2)


def _figure(outcomes: Mapping[str, Outcome], item: str, figure: str) -> Any:
    outcome = outcomes.get(item)
    if outcome is None or outcome.status != PASSED:
        return None
    return outcome.figures.get(figure)
