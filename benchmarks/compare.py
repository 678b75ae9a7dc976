"""pagemill beside its peers, on one workload: the same prompts, threads and greedy tokens.

    python -m benchmarks.compare WORKLOAD.jsonl [--peers NAME,…] [--runs 3] [--subset 32] [--save]

The engines run in turn, round after round, each in a fresh process (a peer in an environment
of its own, which `make peer-NAME` makes), and nothing else should run beside them. Slow peers
run once, on the first rows only, beside a run of pagemill on the same rows. Every row ignores the
end token, so that all do the same work. Start-up counts from the adapter's first line to a loaded
model, memory is that of all processes of an engine, tokens/s is generated tokens over the time from
the first request to the last answer. What pagemill shares between prompts it finds out by itself;
peers called `-primed` are given the common prefix before the clock starts.

`share_of_ceiling` is against the time that float32 matrix products alone would take, measured in
the same round (`benchmarks.ceiling`). Agreement counts prompts, of the first 12, all of whose
tokens are those of transformers in float32.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.agreement import agreement
from benchmarks.ceiling import Rates
from benchmarks.figures import summarize, table, times_as_fast
from benchmarks.peers.registry import BY_NAME, PAGEMILL, PEERS, REFERENCE, Peer, peers_folder
from benchmarks.runs import SAMPLE, RunFailed, Task, run_once
from benchmarks.surroundings import save, surroundings
from benchmarks.workload import Workload

Runs = dict[str, list[dict[str, Any]]]


def main() -> None:
    from engine.loading import resolve_model

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--peers", help="names with commas (default: each that is set up)")
    parser.add_argument("--slow", default="", help="peers to treat as slow, beside those that are")
    parser.add_argument("--runs", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--rows", type=int, help="only so many of the first rows, for a try")
    parser.add_argument("--subset", type=int, default=32, help="rows for slow peers (default: 32)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=1200, help="seconds for one run")
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    workload = Workload.read(options.workload.absolute())
    if options.rows:
        workload = workload.first(options.rows)
    peers = chosen(options.peers, options.slow)
    files = resolve_model(options.model)
    task = Task(files.path, workload.path, options.threads, options.timeout)
    before = surroundings("pagemill", "torch", "transformers")
    reference = reference_tokens(task, workload, files.revision)
    runs, rates, failed = alternate(
        [PAGEMILL, *(p for p in peers if not p.slow)], task, options.runs, len(workload.rows)
    )
    engines = report_of(runs, rates, workload, reference)
    if slow := [p for p in peers if p.slow]:
        subset = workload.first(options.subset)
        slow_runs, slow_rates, more = alternate([PAGEMILL, *slow], task, 1, len(subset.rows))
        parts = report_of(slow_runs, slow_rates, subset, reference)
        engines |= {(n if n != PAGEMILL.name else f"{n}-subset"): e for n, e in parts.items()}
        rates, failed = rates + slow_rates, failed | more
    engines |= {name: {"failed": words} for name, words in failed.items()}
    report = {
        # Two kinds of processors are two results: neither takes the place of the other.
        "benchmark": f"compare-{workload.name}-{before['vectors']}",
        **before,
        "model": {"name": options.model, "revision": files.revision},
        "threads": options.threads,
        "workload": workload.describe(),
        "ceiling": {
            "rates_of_rounds": [vars(r) for r in rates],
            "bound_seconds_of_rounds": [round(r.bound_seconds(workload), 2) for r in rates],
        },
        "engines": engines,
    }
    save(report, to_file=options.save)
    print(table(engines), file=sys.stderr)


def chosen(names: str | None, slow: str = "") -> list[Peer]:
    """The peers of these names, or all that are set up; those of `slow` are taken to be slow.

    Raises:
        SystemExit: one is unknown, or is not set up; says the command that does it.
    """
    if names is None:
        for words in filter(None, (peer.missing for peer in PEERS)):
            print(f"left out: {words}", file=sys.stderr)
        peers = [peer for peer in PEERS if not peer.missing]
    else:
        peers = _named(names)
        if missing := [peer.missing for peer in peers if peer.missing]:
            raise SystemExit("\n".join(missing))
    slowed = _named(slow)
    return [replace(peer, slow=True) if peer in slowed else peer for peer in peers]


def _named(names: str) -> list[Peer]:
    wanted = [name for name in names.split(",") if name]
    if unknown := [name for name in wanted if name not in BY_NAME]:
        raise SystemExit(f"no peer is called {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in wanted]


def alternate(
    engines: list[Peer], task: Task, rounds: int, rows: int
) -> tuple[Runs, list[Rates], dict[str, str]]:
    """Run the engines in turn, after the ceiling, round after round.

    An engine that fails is left out from then on. Returns the runs of the others, the rates of
    each round, and the last words of those that failed.
    """
    runs: Runs = {}
    rates: list[Rates] = []
    failed: dict[str, str] = {}
    for number in range(1, rounds + 1):
        rates.append(measure_ceiling(task))
        for engine in engines:
            if engine.name in failed:
                continue
            try:
                run = run_once(engine, task, rows)
            except RunFailed as error:
                failed[engine.name] = str(error)
                print(error, file=sys.stderr)
                continue
            runs.setdefault(engine.name, []).append(run)
            speed, seconds = run["tokens_per_second"], run["generate_seconds"]
            print(
                f"round {number}: {engine.name}: {speed} tokens/s in {seconds} s", file=sys.stderr
            )
    return {name: found for name, found in runs.items() if name not in failed}, rates, failed


def measure_ceiling(task: Task) -> Rates:
    """In a fresh process, as the engines."""
    command = [sys.executable, "-m", "benchmarks.ceiling", str(task.model)]
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [*command, "--threads", str(task.threads)],
        check=True, stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    return Rates(**json.loads(done.stdout))


def reference_tokens(task: Task, workload: Workload, revision: str) -> list[list[int]]:
    """What transformers says to the first prompts; kept in the peers' folder."""
    import transformers

    rows = min(SAMPLE, len(workload.rows))
    key = f"{workload.sha256[:16]}-{revision[:16]}-{transformers.__version__}-{rows}"
    kept = peers_folder() / "reference" / f"{key.replace('/', '_')}.json"
    if kept.exists():
        tokens: list[list[int]] = json.loads(kept.read_text())
        return tokens
    print("asking transformers for the reference, once for this workload", file=sys.stderr)
    tokens = run_once(REFERENCE, task, rows)["outputs"]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(tokens))
    return tokens


def report_of(
    runs: Runs, rates: list[Rates], workload: Workload, reference: list[list[int]]
) -> dict[str, dict[str, Any]]:
    """For each engine its summary, its versions, whether it agrees, and all its runs."""
    bounds = [rate.bound_seconds(workload) for rate in rates]
    report = {}
    for name, found in runs.items():
        engine = summarize(found, bounds)
        if name != PAGEMILL.name and PAGEMILL.name in runs:
            engine["pagemill_times_as_fast"] = times_as_fast(runs[PAGEMILL.name], found)
        engine["agreement"] = agreement(reference, found[0]["outputs"])
        engine["versions"] = found[0]["versions"]
        hidden = ("outputs", "versions", "rows")
        engine["runs"] = [{k: v for k, v in run.items() if k not in hidden} for run in found]
        report[name] = engine
    return report


if __name__ == "__main__":
    main()
