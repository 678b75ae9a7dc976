"""From the command to the first token: the first time, and when the model is converted already.

    python -m benchmarks.startup [--runs 3] [--save]

Runs `pagemill run examples/support_tickets.jsonl` with one token an answer, in turn with an empty
cache (the packaged GGUF file is converted) and with that cache again, each in a fresh database.
The moments are those of the worker's log, whose clock is this process's.
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

from benchmarks.surroundings import save, surroundings

EXAMPLE = Path(__file__).parent.parent / "examples" / "support_tickets.jsonl"
MODEL = "smollm2-135m"
FIRST, LATER = "first_time", "later"
# What a start waits for, in order.
MOMENTS = ("engine_ready", "ready", "chunk_leased", "first_token")


def run_once(source: Path, home: Path, cache: Path) -> dict[str, float]:
    """Seconds from the start of `pagemill run` to each moment."""
    env = {
        **os.environ,
        "PAGEMILL_HOME": str(home),
        "PAGEMILL_CACHE_DIR": str(cache),
        "PAGEMILL_LOG_FORMAT": "json",
    }
    began = time.time()
    subprocess.run(
        [sys.executable, "-P", "-m", "jobs", "run", str(source), "--model", MODEL],
        env=env,
        check=True,
        capture_output=True,
    )
    (log,) = (home / "storage" / "logs").iterdir()
    seen: dict[str, float] = {}
    for line in log.read_text().splitlines():
        said = json.loads(line)
        seen.setdefault(said.get("event", ""), datetime.fromisoformat(said["ts"]).timestamp())
    return {name: round(seen[name] - began, 2) for name in MOMENTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {FIRST: [], LATER: []}
    with tempfile.TemporaryDirectory() as folder:
        rows = [json.loads(line) for line in EXAMPLE.read_text().splitlines()]
        source = Path(folder) / "tickets.jsonl"
        source.write_text("".join(json.dumps(r | {"max_tokens": 1}) + "\n" for r in rows))
        for number in range(options.runs):
            for name in (FIRST, LATER):
                home, cache = Path(folder) / f"{name}-{number}", Path(folder) / f"cache-{number}"
                runs[name].append(run_once(source, home, cache))
                print(name, runs[name][-1], file=sys.stderr)
    report = {
        "benchmark": "startup",
        **surroundings("torch", "transformers", "tokenizers", "gguf"),
        "model": MODEL,
        "first_token_seconds": {
            name: statistics.median(run["first_token"] for run in taken)
            for name, taken in runs.items()
        },
        "runs": runs,
    }
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
