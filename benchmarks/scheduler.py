"""What the scheduler costs the host in each step, with 256 sequences in the batch.

    python -m benchmarks.scheduler [--steps 1500] [--save]

Times `schedule` and `retire` together, without any device: what a step costs beside its
computation, by the clock and of the processor; quote the latter where other work waits for it too,
and the fastest tenth where that work shares a core and slows it down.
Three loads: *decode*, where nobody comes or goes; *churn*, rows with a common system prompt whose
answers end at different lengths, each followed by a new row; *tight*, the same in a pool that is
too small for all of them, so that some make room for others. Of the first two only steps with at
least 250 sequences count.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.surroundings import save, surroundings
from engine.batch import SampledToken
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, SchedulerConfig

PLACES, FULL = 256, 250
BLOCK_SIZE = 16
LARGE_POOL = 30_000  # blocks


def config(num_blocks: int, swap_blocks: int = 0) -> SchedulerConfig:
    return SchedulerConfig(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=PLACES,
        max_num_batched_tokens=8192,
        max_model_len=8192,
        eos_token_ids=frozenset({0}),
        reserve_growth=False,  # as on a GPU
        swap_blocks=swap_blocks,
    )


def long_rows() -> Iterator[Request]:
    """Rows that outlast the measurement."""
    for number in range(PLACES):
        prompt = tuple(range(number * 100, number * 100 + 100))
        yield Request(f"r{number}", prompt, SamplingParams(8000, ignore_eos=True))


def rows(chance: random.Random) -> Iterator[Request]:
    """Rows of one job without end: 430 tokens in common, 20 to 60 of their own."""
    system = tuple(chance.randrange(40_000) for _ in range(430))
    number = 0
    while True:
        own = tuple(chance.randrange(40_000) for _ in range(chance.randint(20, 60)))
        yield Request(f"r{number}", system + own, SamplingParams(chance.randint(16, 512)))
        number += 1


def measure(
    scheduler: Scheduler, coming: Iterator[Request], steps: int, at_least: int
) -> dict[str, Any]:
    """Run until so many steps had `at_least` sequences; another 64 rows wait all the time."""
    seconds: list[tuple[float, float]] = []
    while len(seconds) < steps:
        while scheduler.num_waiting < 64 and scheduler.num_waiting + scheduler.num_running < 320:
            request = next(coming, None)
            if request is None:
                break
            scheduler.add(request)
        began = _now()
        batch = scheduler.schedule()
        planned = _now()
        tokens = [SampledToken(s.request_id, 1) for s in batch.sequences if s.samples]
        computed = _now()
        scheduler.retire(batch, tokens)
        ended = _now()
        if len(batch.sequences) >= at_least:
            seconds.append(
                (planned[0] - began[0] + ended[0] - computed[0],
                 planned[1] - began[1] + ended[1] - computed[1])
            )  # fmt: skip
    by_the_clock, of_the_processor = zip(*seconds, strict=True)
    stats = scheduler.stats
    return {
        "steps": len(seconds),
        "by_the_clock": _spread(by_the_clock),
        "of_the_processor": _spread(of_the_processor),
        "preemptions": stats.preemptions,
        "swap_outs": stats.swap_outs,
    }


def _now() -> tuple[float, float]:
    """By the clock, and of the processor for this thread alone."""
    return time.perf_counter(), time.thread_time()


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    hundredths = statistics.quantiles(seconds, n=100)
    return {
        "fastest_tenth_ms": round(1000 * hundredths[9], 3),
        "median_ms": round(1000 * statistics.median(seconds), 3),
        "p99_ms": round(1000 * hundredths[98], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1500, help="to time of each load")
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    steps, chance = options.steps, random.Random(1)
    # A row holds 28 shared blocks and 10 or so of its own when it is half done.
    results = {
        "decode": measure(Scheduler(config(LARGE_POOL)), long_rows(), steps, FULL),
        "churn": measure(Scheduler(config(LARGE_POOL)), rows(chance), steps, FULL),
        "tight": measure(Scheduler(config(2_600, 500)), rows(chance), steps, 1),
    }
    report = {"benchmark": "scheduler", **surroundings(), "places": PLACES, "results": results}
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
