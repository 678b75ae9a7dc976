"""What sharing prefixes is worth on the demo: the same job with the prefix cache and without.

    python -m benchmarks.prefix_cache [--runs 3] [--save]

Runs `pagemill run examples/support_tickets.jsonl` with 16 tokens an answer, in turn with and
without the cache, each in a fresh process and database. A run is timed twice: the whole command
(start-up and all), and the job alone, from its first lease to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.surroundings import save, surroundings

EXAMPLE = Path(__file__).parent.parent / "examples" / "support_tickets.jsonl"
MODEL = "smollm2-135m"
MAX_TOKENS = 16


def run_once(source: Path, home: Path, *options: str) -> dict[str, Any]:
    """One `pagemill run`; its wall time and what the database says of the job."""
    env = {**os.environ, "PAGEMILL_HOME": str(home)}
    command = [sys.executable, "-P", "-m", "jobs"]
    began = time.perf_counter()
    subprocess.run(
        [*command, "run", str(source), "--model", MODEL, *options],
        env=env,
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - began
    done = subprocess.run(
        [*command, "list", "--json"], env=env, check=True, capture_output=True, text=True
    )
    (job,) = json.loads(done.stdout)
    started, finished = (datetime.fromisoformat(job[k]) for k in ("started_at", "finished_at"))
    return {
        "command_seconds": round(seconds, 2),
        "job_seconds": round((finished - started).total_seconds(), 2),
        "rows": job["rows"]["completed"],
        "tokens": job["tokens"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {"cache": [], "no_cache": []}
    with tempfile.TemporaryDirectory() as folder:
        rows = [json.loads(line) for line in EXAMPLE.read_text().splitlines()]
        source = Path(folder) / "tickets.jsonl"
        source.write_text("".join(json.dumps(r | {"max_tokens": MAX_TOKENS}) + "\n" for r in rows))
        for number in range(options.runs):
            for name, flags in (("cache", ()), ("no_cache", ("--no-prefix-cache",))):
                home = Path(folder) / f"{name}-{number}"
                runs[name].append(run_once(source, home, *flags))
                print(name, runs[name][-1], file=sys.stderr)
    demo = run_demo()
    report = {
        "benchmark": "prefix_cache",
        **surroundings("torch", "transformers"),
        "model": MODEL,
        "demo_cached_share": round(demo["tokens"]["cached"] / demo["tokens"]["prompt"], 4),
        "demo": demo,
        "max_tokens": MAX_TOKENS,
        "command_ratio": _ratio(runs, "command_seconds"),
        "job_ratio": _ratio(runs, "job_seconds"),
        "runs": runs,
    }
    save(report, to_file=options.save)


def run_demo() -> dict[str, Any]:
    """The demo as it is shipped."""
    with tempfile.TemporaryDirectory() as folder:
        return run_once(EXAMPLE, Path(folder))


def _ratio(runs: dict[str, list[dict[str, Any]]], key: str) -> float:
    """Median time without the cache over median time with it."""
    with_cache, without = (
        statistics.median(r[key] for r in runs[name]) for name in ("cache", "no_cache")
    )
    return round(without / with_cache, 2)


if __name__ == "__main__":
    main()
