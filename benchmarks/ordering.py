"""What the order of waiting rows is worth: arrival order against the scheduler's own.

    python -m benchmarks.ordering [--workload FILE ...] [--rows 512] [--save]

The real scheduler on a simulated device, so the figures do not depend on the machine's load.
A step costs `--step-seconds` + `--token-seconds` a token + `--pair-seconds` a pair of a token and
a token that it attends to. The defaults are those of SmolLM2-135M in float32 on two cores: 0.54 GB
of weights at 21 GB/s, 0.27 GFLOP a token at 200 GFLOP/s, and 55 ms of paged attention for 64
sequences of 550 tokens.

A workload is JSON lines with `ids` and `max_tokens`; all answers have `max_tokens`. Synthetic ones
share 430 prompt tokens. Occupancy is the mean share of places that compute, over the whole time.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.surroundings import save, surroundings
from engine.batch import SampledToken
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, SchedulerConfig
from engine.waiting import WaitingQueue

BLOCK_SIZE = 16
LARGE_POOL, SMALL_POOL = 5_800, 1_000  # blocks: 4 GiB of float32 KV, and far too few
CASES = ((32, LARGE_POOL), (64, LARGE_POOL), (128, LARGE_POOL), (256, LARGE_POOL))
CASES_OF_SMALL_POOL = ((64, SMALL_POOL), (256, SMALL_POOL))
LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "uniform": lambda source: source.randint(16, 512),
    "bimodal": lambda source: 512 if source.random() < 0.1 else 32,
    "heavy_tailed": lambda source: min(2048, int(24 * source.paretovariate(1.1))),
    "equal": lambda source: 128,
}


@dataclass(frozen=True)
class Costs:
    """Seconds of a step, of a token in it, and of a token that another one attends to."""

    step: float
    token: float
    pair: float


def arrival_order(config: SchedulerConfig) -> Scheduler:
    """Groups of equal prefixes and then arrival."""
    return Scheduler(config, waiting=WaitingQueue(config.block_size))


def synthetic(lengths: Callable[[random.Random], int], rows: int) -> list[Request]:
    """Rows with one shared prefix and answers of different lengths."""
    source = random.Random(1)
    shared = tuple(source.randrange(1, 40_000) for _ in range(430))
    requests = []
    for number in range(rows):
        own = tuple(source.randrange(1, 40_000) for _ in range(source.randint(20, 60)))
        requests.append(_request(number, shared + own, lengths(source)))
    return requests


def read(path: Path) -> list[Request]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [_request(i, tuple(row["ids"]), row["max_tokens"]) for i, row in enumerate(rows)]


def _request(number: int, prompt: tuple[int, ...], answer: int) -> Request:
    return Request(str(number), prompt, SamplingParams(max_tokens=answer, ignore_eos=True))


def simulate(scheduler: Scheduler, requests: list[Request], costs: Costs) -> dict[str, Any]:
    """Run all requests, which arrive at once; seconds are those of the simulated device."""
    for request in requests:
        scheduler.add(request)
    places = min(scheduler.config.max_num_seqs, len(requests))
    seconds = busy = 0.0
    while scheduler.has_unfinished:
        batch = scheduler.schedule()
        pairs = sum(len(s.token_ids) * (s.start + s.end + 1) / 2 for s in batch.sequences)
        step = costs.step + costs.token * batch.num_tokens + costs.pair * pairs
        seconds += step
        busy += step * len(batch.sequences) / places
        tokens = [SampledToken(s.request_id, 0) for s in batch.sequences if s.samples]
        scheduler.retire(batch, tokens)
    stats = scheduler.stats
    return {
        "seconds": round(seconds, 2),
        "steps": stats.steps,
        "occupancy": round(busy / seconds, 3),
        "preemptions": stats.preemptions,
    }


def compare(requests: list[Request], places: int, blocks: int, costs: Costs) -> dict[str, Any]:
    config = SchedulerConfig(
        num_blocks=blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=places,
        max_num_batched_tokens=512,
        max_model_len=8_192,
        eos_token_ids=frozenset(),
    )
    one_step_ahead = replace(config, reserve_growth=False)
    arrival = simulate(arrival_order(one_step_ahead), requests, costs)
    longest = simulate(Scheduler(one_step_ahead), requests, costs)
    ours = simulate(Scheduler(config), requests, costs)
    return {
        "max_num_seqs": places,
        "num_blocks": blocks,
        "time_ratio": {
            "longest_first": round(longest["seconds"] / arrival["seconds"], 3),
            "longest_first_reserving_growth": round(ours["seconds"] / arrival["seconds"], 3),
        },
        "arrival_order": arrival,
        "longest_first": longest,
        "longest_first_reserving_growth": ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workload", type=Path, action="append", default=[])
    parser.add_argument("--rows", type=int, default=512, help="of each synthetic set")
    parser.add_argument("--step-seconds", type=float, default=0.025)
    parser.add_argument("--token-seconds", type=float, default=1.35e-3)
    parser.add_argument("--pair-seconds", type=float, default=1.6e-6)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    costs = Costs(options.step_seconds, options.token_seconds, options.pair_seconds)
    sets = {path.stem: read(path) for path in options.workload}
    sets |= {name: synthetic(lengths, options.rows) for name, lengths in LENGTHS.items()}
    results = {
        name: [compare(rows, *case, costs) for case in CASES + CASES_OF_SMALL_POOL]
        for name, rows in sets.items()
    }
    report = {
        "benchmark": "ordering",
        **surroundings(),
        "costs": {"step": costs.step, "token": costs.token, "pair": costs.pair},
        "results": results,
    }
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
