"""What every adapter shares: the workload in, the clock, one JSON object out.

Adapters run inside a peer's own environment, so this file needs the standard library alone.
An adapter gives `run` a function that loads the peer and returns another, which answers rows; and
with it, where one prompt answered does not do, a third that primes the peer for all.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Row:
    """One prompt: its token ids, and how many tokens to generate, whatever they are."""

    ids: list[int]
    max_tokens: int


@dataclass(frozen=True)
class Options:
    """What `compare.py` asks of a run.

    Attributes:
        model: folder of the model in the layout of Hugging Face.
        environment: folder of the peer's environment, for what else its set-up made.
        threads: threads to compute with.
        method: which of the peer's ways to generate, where it has several.
        kv_cache_dtype: number format of pagemill's KV cache.
    """

    model: Path
    environment: Path
    threads: int
    method: str | None
    kv_cache_dtype: str


Generate = Callable[[list[Row]], list[list[int]]]
Prime = Callable[[list[Row]], object]


def run(load: Callable[[Options], Generate | tuple[Generate, Prime]], *packages: str) -> None:
    """Load the peer, answer the workload, and write what it took to the file `--output`.

    `packages` are the distributions whose versions belong to the figures. Load time counts from
    the start of the adapter, imports and all.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rows", type=int, help="only so many of the workload's first rows")
    parser.add_argument("--sample", type=int, default=0, help="report the tokens of so many rows")
    parser.add_argument("--primed", action="store_true", help="compute the common prefix first")
    parser.add_argument("--method")
    parser.add_argument("--kv-cache-dtype", default="auto")
    given = parser.parse_args()
    rows = _read(given.workload)[: given.rows]
    made = load(
        Options(given.model, given.environment, given.threads, given.method, given.kv_cache_dtype)
    )
    generate, prime = made if isinstance(made, tuple) else (made, None)
    loaded = time.perf_counter()
    if given.primed and prime:
        prime(rows)
    elif given.primed:
        generate([Row(rows[0].ids, 1)])
    began = time.perf_counter()
    outputs = generate(rows)
    ended = time.perf_counter()
    _check(rows, outputs)
    report = {
        "rows": len(rows),
        "load_seconds": round(loaded - _BEGAN, 3),
        "prime_seconds": round(began - loaded, 3) if given.primed else None,
        "generate_seconds": round(ended - began, 3),
        "generated_tokens": sum(map(len, outputs)),
        "peak_memory_mb": peak_memory_mb(),
        "versions": {name: version(name) for name in packages},
        "outputs": outputs[: given.sample],
    }
    given.output.write_text(json.dumps(report))


def peak_memory_mb() -> int:
    """Largest resident memory of this process alone so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def common_prefix(rows: list[Row]) -> list[int]:
    """The token ids with which all prompts begin, less their last one at least."""
    first, last = (pick(row.ids[:-1] for row in rows) for pick in (min, max))
    differ = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, len(first))]


def _read(workload: Path) -> list[Row]:
    lines = (json.loads(line) for line in workload.read_text().splitlines())
    return [Row(line["ids"], line["max_tokens"]) for line in lines]


def _check(rows: list[Row], outputs: list[list[int]]) -> None:
    """Raises SystemExit where the work was not the same for all: a row too short or too long."""
    for i, (row, output) in enumerate(zip(rows, outputs, strict=True)):
        if len(output) != row.max_tokens:
            raise SystemExit(f"row {i}: {len(output)} tokens came, {row.max_tokens} were asked for")
