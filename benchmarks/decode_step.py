"""Where the milliseconds of a decode step go, with the C++ kernels and with torch alone.

    python -m benchmarks.decode_step [--save]

Steps of SmolLM2 with 64 sequences of 550 tokens (nothing shared), and with 256 sequences of 500
tokens of which 416 are shared. Each way runs in a process of its own; times are medians over steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.surroundings import save, surroundings

MODEL = "smollm2-135m"
CASES = {"64 x 550": (64, 550, 0), "256 x 500, 416 shared": (256, 500, 416)}
WAYS = {
    "torch alone": ("none", "auto"),
    "C++, float32 cache": (None, "auto"),
    "C++, float16 cache": (None, "float16"),
}
BLOCK_SIZE, STEPS = 16, 7


def measure(kv_dtype: str, threads: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of each part of a step, for each case, in this process."""
    from unittest import mock

    import engine.models.decoder as decoder
    import engine.models.weight as weight
    import engine.runner as runner
    from engine.kv_cache import KVCache
    from engine.kv_format import choose_kv_format
    from engine.loading import load_model, resolve_model

    loaded = load_model(resolve_model(MODEL), "float32", "cpu")
    kv_format = choose_kv_format(kv_dtype, loaded.dtype, loaded.device)
    spent: dict[str, float] = defaultdict(float)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = function(*args, **kwargs)
            spent[part] += time.perf_counter() - began
            return result

        return run

    parts = [
        (decoder, "paged_attention", "attention"),
        (decoder, "rope_kv_write", "RoPE and KV write"),
        (decoder, "rms_norm", "norms"),
        (decoder, "add_rms_norm", "norms"),
        (decoder, "silu_and_mul", "SiLU"),
        (weight.DenseWeight, "multiply", "products"),
        (weight.PackedWeight, "multiply", "products"),
        (runner, "sample", "sampling"),
        (runner.Runner, "_arrays", "inputs and plan"),
        (runner.Runner, "_inputs", "inputs and plan"),
    ]
    found: dict[str, dict[str, float]] = {}
    for case, (sequences, length, shared) in CASES.items():
        batch, num_blocks = _batch(sequences, length, shared)
        cache = KVCache.create(loaded.config, num_blocks, BLOCK_SIZE, kv_format, loaded.device)
        for layer in cache.layers:
            layer.keys.normal_()
            layer.values.normal_()
        ours = runner.Runner(loaded, cache, threads=threads)
        patches = [
            mock.patch.object(place, name, timed(part, getattr(place, name)))
            for place, name, part in parts
        ]
        for patch in patches:
            patch.start()
        steps: list[dict[str, float]] = []
        for _ in range(STEPS + 1):
            spent.clear()
            began = time.perf_counter()
            ours.execute(batch)
            spent["whole step"] = time.perf_counter() - began
            spent["the rest"] = 2 * spent["whole step"] - sum(spent.values())
            steps.append(dict(spent))
        for patch in patches:
            patch.stop()
        found[case] = {
            part: round(statistics.median(step[part] for step in steps[1:]) * 1e3, 1)
            for part in steps[0]
        }
    return found


def _batch(sequences: int, length: int, shared: int) -> tuple[Any, int]:
    from engine.batch import Batch, ScheduledSequence
    from engine.sampling_params import SamplingParams

    prefix = tuple(range(shared // BLOCK_SIZE))
    own = -(-length // BLOCK_SIZE) - len(prefix)
    parts = [
        ScheduledSequence(
            str(i),
            (1000 + i,),
            length - 1,
            (*prefix, *range(len(prefix) + i * own, len(prefix) + (i + 1) * own)),
            True,
            SamplingParams(max_tokens=8),
        )
        for i in range(sequences)
    ]
    return Batch(1, tuple(parts)), len(prefix) + sequences * own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    parser.add_argument("--kv-cache-dtype", help=argparse.SUPPRESS)  # one way, in this process
    options = parser.parse_args()
    if options.kv_cache_dtype:
        print(json.dumps(measure(options.kv_cache_dtype, options.threads)))
        return
    from worker.engine_process import PATIENT_THREADS

    ways = {}
    for way, (kernels, kv_dtype) in WAYS.items():
        env = {**PATIENT_THREADS, **os.environ}
        if kernels:
            env["PAGEMILL_CPU_KERNELS"] = kernels
        command = [
            sys.executable, "-m", "benchmarks.decode_step", "--threads", str(options.threads),
            "--kv-cache-dtype", kv_dtype,
        ]  # fmt: skip
        done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
        ways[way] = json.loads(done.stdout)
    report = {
        "benchmark": "decode_step", **surroundings("torch"), "model": MODEL,
        "threads": options.threads, "steps": STEPS, "milliseconds": ways,
    }  # fmt: skip
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
