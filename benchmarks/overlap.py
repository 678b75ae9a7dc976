"""What it is worth that the host plans a step while the device computes the one before.

    python -m benchmarks.overlap [--rows 256] [--steps 60] [--save]

The engine's real scheduler and pipeline on a device that computes nothing and takes `D` ms a step,
as a GPU does beside a host that is free meanwhile. The host's own work is what it is: planning and
retiring a step with so many rows; and `H` ms that stand for the handling of tokens (stop strings,
messages, detokenizing), waited rather than computed, so that the load of the machine moves little.
Of each pair, all steps are run one at a time and overlapped in turn. `host_share_ms` is what a step
takes beyond D when they run one at a time: H, planning and retiring. `bound_ms` is the larger of
this and D: what an overlapped step can take at best.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from benchmarks.surroundings import save, surroundings
from engine.batch import Batch, SampledToken
from engine.launched_step import LaunchedStep
from engine.micro_batches import MicroBatches
from engine.pipeline import Pipeline
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, SchedulerConfig

PAIRS = ((5.0, 0.0), (5.0, 2.0), (5.0, 5.0), (20.0, 5.0), (5.0, 10.0))  # D and H, in ms
ROUNDS = 3


@dataclass(frozen=True)
class Pending:
    """A step on its way: it has ended when the device has taken its time for it."""

    batch: Batch
    ended: Future[None]

    def collect(self) -> list[SampledToken]:
        self.ended.result()
        return [SampledToken(s.request_id, 1) for s in self.batch.sequences if s.samples]


class Clockwork:
    """A device that takes the same time for every step, and takes one after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1)

    def launch(self, batch: Batch, before: LaunchedStep | None = None) -> LaunchedStep:
        return cast(LaunchedStep, Pending(batch, self._thread.submit(self._compute)))

    def execute(self, batch: Batch) -> list[SampledToken]:
        return self.launch(batch).collect()

    def _compute(self) -> None:
        wait(self._seconds)


def wait(seconds: float) -> None:
    if seconds:
        threading.Event().wait(seconds)


def step_seconds(device: float, host: float, rows: int, steps: int, *, overlap: bool) -> float:
    """Mean seconds of a step in which all rows decode."""
    scheduler = Scheduler(
        SchedulerConfig(
            num_blocks=rows * 40,
            block_size=16,
            max_num_seqs=rows,
            max_num_batched_tokens=8192,
            max_model_len=512,
            eos_token_ids=frozenset({0}),
            reserve_growth=False,  # as on a GPU
        )
    )
    clockwork = Clockwork(device)
    pipeline = Pipeline(
        scheduler,
        MicroBatches(clockwork.execute, lambda copies: None, 8192),
        clockwork.launch if overlap else None,
        lambda tokens, seconds: None,
    )
    rules = SamplingParams(500, ignore_eos=True)
    for number in range(rows):
        scheduler.add(Request(f"r{number}", (number + 1, 2, 3), rules))
    for number in range(steps + 5):
        if number == 5:  # all rows decode
            began = time.perf_counter()
        assert pipeline.fill(lambda batch: None)
        pipeline.retire()
        wait(host)
    return (time.perf_counter() - began) / steps


def compare(device_ms: float, host_ms: float, rows: int, steps: int) -> dict[str, Any]:
    """Both ways in turn; medians of the rounds, in ms a step."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for overlap, seconds in taken.items():
            given = device_ms / 1000, host_ms / 1000, rows, steps
            seconds.append(1000 * step_seconds(*given, overlap=overlap))
    in_turn, overlapped = (median(taken[way]) for way in (False, True))
    host = in_turn - device_ms
    return {
        "device_ms": device_ms,
        "waited_host_ms": host_ms,
        "host_share_ms": round(host, 2),
        "one_at_a_time_ms": round(in_turn, 2),
        "overlapped_ms": round(overlapped, 2),
        "bound_ms": round(max(device_ms, host), 2),
        "ratio": round(overlapped / in_turn, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60, help="of each round")
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    results = [compare(*pair, options.rows, options.steps) for pair in PAIRS]
    report = {"benchmark": "overlap", **surroundings(), "rows": options.rows, "results": results}
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
