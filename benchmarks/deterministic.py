"""What `--deterministic` costs: decode steps and prompt chunks with it and without it, in turn.

    python -m benchmarks.deterministic [--save]

Steps of SmolLM2 in float32. The two ways run in this process, one step of each after the other, so
that other work on the machine falls on both; times are medians, ratios over pairs of neighbours.
On a machine with other work, the ratio of processor times is the one to quote.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from benchmarks.surroundings import save, surroundings
from engine.batch import Batch, ScheduledSequence
from engine.kv_cache import KVCache
from engine.kv_format import choose_kv_format
from engine.loading import load_model, resolve_model
from engine.runner import Runner
from engine.sampling_params import SamplingParams

MODEL, BLOCK_SIZE, ROUNDS = "smollm2-135m", 16, 9
GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=1.0, top_p=0.9)
# Sequences, tokens of each in the step, tokens of context, tokens shared by all, sampling.
CASES = {
    "1 decode of 200 tokens": (1, 1, 200, 0, GREEDY),
    "8 decodes of 200 tokens": (8, 1, 200, 0, GREEDY),
    "64 decodes of 550 tokens": (64, 1, 550, 0, GREEDY),
    "64 decodes of 550 tokens, sampled": (64, 1, 550, 0, SAMPLED),
    "256 decodes of 500 tokens, 416 shared": (256, 1, 500, 416, GREEDY),
    "a prompt of 512 tokens": (1, 512, 512, 0, GREEDY),
    "512 tokens of a prompt of 4096": (1, 512, 4096, 0, GREEDY),
}


def step(
    sequences: int, tokens: int, context: int, shared: int, params: SamplingParams
) -> tuple[Batch, int]:
    """One step, and the blocks that it needs."""
    prefix = tuple(range(shared // BLOCK_SIZE))
    own = -(-context // BLOCK_SIZE) - len(prefix)
    parts = tuple(
        ScheduledSequence(
            str(i),
            tuple(range(1000 + i, 1000 + i + tokens)),
            context - tokens,
            (*prefix, *range(len(prefix) + i * own, len(prefix) + (i + 1) * own)),
            True,
            params,
        )
        for i in range(sequences)
    )
    return Batch(1, parts), len(prefix) + sequences * own


def runners(threads: int, num_blocks: int) -> dict[str, Runner]:
    """The model in both ways, over one cache of arbitrary numbers."""
    files = resolve_model(MODEL)
    loaded = {
        name: load_model(files, "float32", "cpu", deterministic=deterministic)
        for name, deterministic in (("default", False), ("deterministic", True))
    }
    first = loaded["default"]
    kv_format = choose_kv_format("auto", first.dtype, first.device)
    cache = KVCache.create(first.config, num_blocks, BLOCK_SIZE, kv_format, first.device)
    for layer in cache.layers:
        layer.keys.normal_()
        layer.values.normal_()
    return {name: Runner(model, cache, threads=threads) for name, model in loaded.items()}


def seconds(runner: Runner, batch: Batch) -> tuple[float, float]:
    """By the clock, and of processor time in all threads."""
    began, worked = time.perf_counter(), time.process_time()
    runner.execute(batch)
    return time.perf_counter() - began, time.process_time() - worked


def measure(ways: dict[str, Runner], batch: Batch) -> dict[str, float]:
    """Median milliseconds of a step in each way, and how many times as long the second takes."""
    rounds = [
        {name: seconds(runner, batch) for name, runner in ways.items()} for _ in range(ROUNDS + 1)
    ][1:]
    found: dict[str, float] = {}
    for i, kind in enumerate(("", "processor_")):
        for name in ways:
            value = statistics.median(times[name][i] for times in rounds)
            found[f"{name}_{kind}ms"] = round(value * 1e3, 1)
        ratios = [times["deterministic"][i] / times["default"][i] for times in rounds]
        found[f"{kind}ratio"] = round(statistics.median(ratios), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    steps = {name: step(*case) for name, case in CASES.items()}
    ways = runners(options.threads, max(blocks for _, blocks in steps.values()))
    report: dict[str, Any] = {
        "benchmark": "deterministic", **surroundings("torch"), "model": MODEL,
        "threads": options.threads, "rounds": ROUNDS, "cases": {},
    }  # fmt: skip
    for name, (batch, _) in steps.items():
        report["cases"][name] = measure(ways, batch)
        print(name, report["cases"][name], file=sys.stderr)
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
