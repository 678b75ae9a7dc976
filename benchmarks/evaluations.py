"""How long scoring, comparing and reporting an evaluation takes, and with how much memory.

    python -m benchmarks.evaluations [--rows 1000000] [--save]

Two evaluations of one series are run as a beat would, over a data set of questions with a number
for an answer; the answers are not a model's but drawn, seven of ten right. Then each step is done
again by a process of its own, three times, whose peak resident memory (of Linux) counts imports and
all:

- `score`: the score of each row by three scorers, written to a file and summed up over all rows
  and over eight slices
- `compare`: the same rows of both evaluations, in pairs, with the intervals of their differences
- `report`: the page of the series

`seconds` and `peak_rss_mb` are medians. `--save` writes them to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.surroundings import peak_rss_mb, save, surroundings

if TYPE_CHECKING:
    from jobs.settings import Settings
    from jobs.store import Store

ROWS = 1_000_000
RUNS = 3
STEPS = ("score", "compare", "report")
SCORERS = ("exact", "numeric", "f1")
MODEL, SERIES = "smollm2-135m", "benchmark"
QUESTIONS = "questions.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step, home, what = options.step
        made = evaluate(home, int(what)) if step == "evaluate" else measured_here(step, home, what)
        print(json.dumps(made))
        return
    report = {
        "benchmark": "evaluations",
        **surroundings("pyarrow", "numpy"),
        "rows": options.rows,
        "scorers": SCORERS,
        "results": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / QUESTIONS, options.rows)
        _, newest = (in_a_process("evaluate", folder, seed) for seed in ("1", "2"))
        for step in STEPS:
            runs = [in_a_process(step, folder, newest) for _ in range(RUNS)]
            report["results"][step] = {
                name: statistics.median(run[name] for run in runs)
                for name in ("seconds", "cpu_seconds", "peak_rss_mb")
            } | {"seconds_of_runs": [run["seconds"] for run in runs]}
    save(report, to_file=options.save)


def write_rows(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for n in range(rows):
            row = {"prompt": f"What is {n} + 17?", "target": str(n + 17), "topic": f"topic {n % 8}"}
            file.write(json.dumps(row) + "\n")


def evaluate(home: str, seed: int) -> str:
    """Run an evaluation from its beginning to its end; returns its id."""
    from jobs.evaluation import runs
    from jobs.evaluation.spec import EvaluationSpec
    from jobs.ids import new_id
    from jobs.records.evaluations import Trigger
    from jobs.storage import Storage

    spec = {
        "version": 1,
        "inputs": [str(Path(home) / QUESTIONS)],
        "model": MODEL,
        "scorers": [{"scorer": name} for name in SCORERS],
        "slices": ["topic"],
    }
    settings, store = _opened(home)
    storage = Storage(settings.storage_url)
    id = new_id("eval")
    whole = EvaluationSpec.from_json(spec).to_json()
    store.insert_evaluation(id, name=SERIES, spec=whole, trigger=Trigger.ONCE)
    while runs.drive(store, storage, settings, "benchmark", id):
        pass
    _answer(store, storage, random.Random(seed))
    while runs.drive(store, storage, settings, "benchmark", id):
        pass
    assert store.evaluation(id).state == "completed", store.evaluation(id).error_message
    return id


def _answer(store: Store, storage: Any, draw: random.Random) -> None:
    """Answer all that is queued, as a worker commits it."""
    from jobs import finalize
    from jobs.parts import read_chunk_input, write_part
    from jobs.records import Counts, RowResult
    from jobs.result_table import result_table

    while (lease := store.claim_chunk("benchmark", MODEL)) is not None:
        folder = storage.job(lease.folder)
        asked = read_chunk_input(folder, lease.input_path, lease.ordinal)
        numbers = asked["row_index"].to_pylist()
        answers = result_table(
            RowResult(n, str(n + 17 if draw.random() < 0.7 else n), "stop", 9, 0, 3, seed=n)
            for n in numbers
        )
        part = write_part(folder, lease, asked, answers)
        store.commit_chunk(lease, part, Counts(completed=len(numbers)), {}, None)
    finalize.drive(store, storage, "benchmark")


def in_a_process(step: str, home: str, what: str) -> Any:
    """A step in a fresh process; what it prints."""
    command = [sys.executable, "-m", "benchmarks.evaluations", "--step", step, home, what]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def measured_here(step: str, home: str, evaluation: str) -> dict[str, float]:
    started, cpu = time.perf_counter(), time.process_time()
    {"score": _score, "compare": _compare, "report": _report}[step](home, evaluation)
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_rss_mb": peak_rss_mb(),
    }


def _score(home: str, evaluation: str) -> None:
    from jobs.evaluation.scoring import write_scores
    from jobs.evaluation.spec import EvaluationSpec
    from jobs.storage import Storage

    settings, store = _opened(home)
    found = store.evaluation(evaluation)
    spec = EvaluationSpec.from_json(found.spec)
    assert found.job_id is not None
    path = f"evaluations/{found.id}/scores-again.parquet"
    storage = Storage(settings.storage_url)
    job = store.job(found.job_id)
    write_scores(store, storage, found, path, spec, spec.make_scorers(), job)


def _compare(home: str, evaluation: str) -> None:
    from jobs.evaluation.scores_file import ScoresFile
    from jobs.evaluation.scoring import compared, earlier_ones
    from jobs.evaluation.spec import EvaluationSpec
    from jobs.storage import Storage

    settings, store = _opened(home)
    now = store.evaluation(evaluation)
    storage, spec = Storage(settings.storage_url), EvaluationSpec.from_json(now.spec)
    (earlier,) = earlier_ones(store, now)
    then = earlier.evaluation
    assert now.scores_path is not None
    assert then.scores_path is not None
    files = ScoresFile(storage, now.scores_path), ScoresFile(storage, then.scores_path)
    found = compared(*files, earlier.role, then.id, spec.make_scorers(), spec.seed)
    assert len(found) == len(SCORERS)


def _report(home: str, evaluation: str) -> None:
    from jobs.report.data import gather
    from jobs.report.page import render
    from jobs.storage import Storage

    settings, store = _opened(home)
    page = render(gather(store, Storage(settings.storage_url), evaluation, "previous", 30, 50))
    assert "exact" in page


def _opened(home: str) -> tuple[Settings, Store]:
    from jobs.database import Database, upgrade
    from jobs.settings import Settings
    from jobs.store import Store

    settings = Settings.from_env({"PAGEMILL_HOME": home})
    upgrade(settings.database_url)
    return settings, Store(Database(settings.database_url))


if __name__ == "__main__":
    main()
