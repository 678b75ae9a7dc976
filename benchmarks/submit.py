"""How fast, and with how much memory, an input file becomes a queued job.

    python -m benchmarks.submit [--rows 200000] [--save]

Makes JSON lines in a temporary folder, in three shapes: bare prompts of about 300 bytes a row,
chats whose system prompt of about 2 kB is shared, and the same chats as lines of an OpenAI batch
file. Each is read, checked, planned, written and queued in SQLite by a process of its own, whose
peak resident memory (of Linux) counts imports and all.
The figures are those of the median of three runs; other work on the machine shows in
`load_average`, and hardly in `rows_per_cpu_second`. `--save` writes them to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.surroundings import peak_rss_mb, save, surroundings

ROWS = 200_000
RUNS = 3
SHAPES = ("prompts", "chats", "openai")
_WORDS = (
    "order",
    "parcel",
    "invoice",
    "refund",
    "battery",
    "saddle",
    "engine",
    "window",
    "garden",
    "coffee",
    "printer",
    "signal",
    "please",
    "could",
    "after",
    "before",
    "because",
    "yesterday",
    "arrived",
    "broken",
    "return",
    "exchange",
    "warranty",
)


def write_input(path: Path, shape: str, rows: int) -> None:
    """Rows in random order; one of a thousand is a line that is no JSON."""
    rng = random.Random(0)
    systems = [_text(rng, 2000) for _ in range(4)]
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            if i % 1000 == 999:
                file.write("this line is no JSON\n")
                continue
            row: dict[str, Any] = {"custom_id": f"row-{i:07d}", "max_tokens": 48}
            if shape == "prompts":
                row |= {"prompt": _text(rng, 230), "channel": rng.choice(("mail", "chat"))}
            else:
                row["messages"] = [
                    {"role": "system", "content": rng.choice(systems)},
                    {"role": "user", "content": _text(rng, 200)},
                ]
            if shape == "openai":
                url = "/v1/chat/completions"
                body = {
                    "model": "benchmark",
                    "messages": row["messages"],
                    "max_completion_tokens": row["max_tokens"],
                }
                row = {"custom_id": row["custom_id"], "method": "POST", "url": url, "body": body}
            file.write(json.dumps(row) + "\n")


def measure(path: Path, storage: Path) -> dict[str, Any]:
    """Submit in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.submit", "--submit", str(path), str(storage)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def submit_here(path: str, storage: str) -> dict[str, Any]:
    from jobs.database import Database, upgrade
    from jobs.storage import Storage
    from jobs.store import Store
    from jobs.submission import Submission, prepare

    url = f"sqlite:///{storage}.db"
    upgrade(url)
    database = Database(url)
    started, cpu = time.perf_counter(), time.process_time()
    job = prepare(Submission(input=path, model="benchmark"), Storage(storage))
    prepared = time.perf_counter()
    Store(database).insert_job(job)
    finished, cpu = time.perf_counter(), time.process_time() - cpu
    wall = finished - started
    database.close()
    return {
        "rows": job.plan.total_rows,
        "rejected": job.plan.rejected,
        "chunks": len(job.plan.chunks),
        "windows": len(job.plan.windows),
        "seconds": round(wall, 3),
        "insert_seconds": round(finished - prepared, 3),
        "cpu_seconds": round(cpu, 3),
        "rows_per_second": round(job.plan.total_rows / wall),
        "rows_per_cpu_second": round(job.plan.total_rows / cpu),
        "peak_rss_mb": peak_rss_mb(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    parser.add_argument("--submit", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.submit:
        print(json.dumps(submit_here(*options.submit)))
        return
    report = {"benchmark": "submit", **surroundings("pyarrow", "orjson"), "results": {}}
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            path = Path(folder) / f"{shape}.jsonl"
            write_input(path, shape, options.rows)
            runs = [measure(path, Path(folder) / f"{shape}-{i}") for i in range(RUNS)]
            runs.sort(key=lambda run: run["seconds"])
            report["results"][shape] = {
                "input_bytes": path.stat().st_size,
                "seconds_of_runs": [run["seconds"] for run in runs],
                **runs[len(runs) // 2],
            }
    save(report, to_file=options.save)


def _text(rng: random.Random, length: int) -> str:
    text = ""
    while len(text) < length:
        text += rng.choice(_WORDS) + " "
    return text[:length]


if __name__ == "__main__":
    main()
