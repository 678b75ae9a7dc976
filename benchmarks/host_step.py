"""What a whole step costs the host beside its computation, with 256 sequences that decode.

    python -m benchmarks.host_step [--steps 200] [--save]

Runs the engine on SmolLM2, but for the model and for sampling: the model answers at once, and
what `sample` takes is taken out. All else counts: planning, limits, stop strings, the step's
tensors, answers. How attention is to be computed is planned on the host too; that part is told
apart. Steps are measured as they are on a CPU, and as they are on a GPU, where a step is a graph
that another device computes. `benchmarks.scheduler` times the scheduler alone.

Milliseconds are of the processor, for the engine's thread: other work on the machine does not
count, though it slows the processor down. The fastest tenth is what it takes where it is alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.surroundings import save, surroundings

if TYPE_CHECKING:
    from engine.core import Engine

MODEL = "smollm2-135m"
PLACES, PROMPT, ANSWER = 256, 100, 500
# How many tokens of their prompts the rows share, and whether each has a stop string.
CASES = {
    "distinct rows": (0, False),
    "96 of 100 tokens shared": (96, False),
    "distinct rows, each with a stop string": (0, True),
}
SCHEDULER, PLAN, SAMPLING = "scheduler", "attention plan", "sampling"


def measure(shared: int, with_stop: bool, steps: int, on_gpu: bool) -> dict[str, dict[str, float]]:
    """Milliseconds of each part of a step in which all places are taken by decodes."""
    import torch

    from engine import decode_graphs, runner
    from kernels.gpu import library

    # The kernels' interpreter is asked for, but never run: the model answers at once.
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ[library.VARIANT_VARIABLE] = "interpreter" if on_gpu else "none"
    library.forget()
    capture = mock.Mock(return_value=_captures_nothing)
    with mock.patch.object(decode_graphs, "CudaCapture", capture):
        engine = _engine(shared, with_stop, on_gpu)
    spent: dict[str, float] = defaultdict(float)
    parts = [
        (engine.scheduler, "schedule", SCHEDULER),
        (engine.scheduler, "retire", SCHEDULER),
        (runner, "plan_on_host", PLAN),
        (decode_graphs, "plan_decodes", PLAN),
        (runner, "sample", SAMPLING),
    ]
    logits = torch.zeros(PLACES, engine.loaded.config.vocab_size)
    logits[:, 1000] = 1.0

    def answer(*args: Any) -> torch.Tensor:
        return logits[: len(args[-1])]

    found: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as patches:
        model = type(engine.loaded.model)
        for name in ("forward", "logits"):
            patches.enter_context(mock.patch.object(model, name, answer))
        for place, name, part in parts:
            timed = _timed(spent, part, getattr(place, name))
            patches.enter_context(mock.patch.object(place, name, timed))
        while engine.scheduler.num_waiting or engine.scheduler.stats.generated_tokens < PLACES:
            engine.step()
        for _ in range(steps):
            spent.clear()
            began = time.thread_time()
            engine.step()
            whole = time.thread_time() - began - spent[SAMPLING]
            found["whole"].append(whole)
            found["scheduler"].append(spent[SCHEDULER])
            found["attention plan"].append(spent[PLAN])
            found["whole but for the attention plan"].append(whole - spent[PLAN])
    assert engine.scheduler.num_running == PLACES
    return {part: _spread(seconds) for part, seconds in found.items()}


def _captures_nothing(compute: Callable[[], None]) -> Callable[[], None]:
    """In place of a CUDA graph."""
    return lambda: None


def _engine(shared: int, with_stop: bool, on_gpu: bool) -> Engine:
    from engine.config import EngineConfig
    from engine.core import Engine
    from engine.request import Request
    from engine.sampling_params import SamplingParams

    num_blocks = PLACES * (PROMPT + ANSWER) // 16  # most of that memory is never touched
    engine = Engine(
        EngineConfig(
            MODEL, device="cpu", num_blocks=num_blocks, max_num_seqs=PLACES, swap_space=0,
            max_num_batched_tokens=8192, threads=1, cuda_graphs=on_gpu,
        )
    )  # fmt: skip
    stop = ("a text that never comes",) if with_stop else ()
    prefix = tuple(range(2000, 2000 + shared))
    for number in range(PLACES):
        first = 3000 + PROMPT * number
        own = tuple(range(first, first + PROMPT - shared))
        engine.add(Request(f"r{number}", prefix + own, SamplingParams(ANSWER, stop=stop)))
    return engine


def _timed(spent: dict[str, float], part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        result = function(*args, **kwargs)
        spent[part] += time.thread_time() - began
        return result

    return run


def _spread(seconds: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(seconds, n=10)
    return {
        "median_ms": round(1000 * statistics.median(seconds), 3),
        "fastest_tenth_ms": round(1000 * tenths[0], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200, help="to time of each case")
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    results = {
        device: {case: measure(*rows, options.steps, on_gpu) for case, rows in CASES.items()}
        for device, on_gpu in (("as on a CPU", False), ("as on a GPU", True))
    }
    report = {
        "benchmark": "host_step", **surroundings("torch"), "model": MODEL, "places": PLACES,
        "steps": options.steps, "of_the_processor": results,
    }  # fmt: skip
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
