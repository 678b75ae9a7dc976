"""The command line that both scripts of the GPU have in common."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.child import run_items
from benchmarks.gpu.items import FAILED, NOT_RUN, Item, Outcome
from benchmarks.gpu.machine import machine
from benchmarks.gpu.supervisor import Supervisor, as_json
from benchmarks.surroundings import RESULTS

BUDGET = 540.0  # a run is to fit into ten minutes


@dataclass(frozen=True)
class Script:
    """One of the two scripts.

    Attributes:
        name: of its results.
        module: `python -m` starts it by this name.
        items: of a dry run, or of a real one.
        at_once: groups of items that run at the same time.
        judge: what is said of all outcomes together, of a dry run or a real one, and kept with
            them.
    """

    name: str
    module: str
    items: Callable[[bool], Sequence[Item]]
    at_once: int = 1
    judge: Callable[[Mapping[str, Outcome], bool], dict[str, Any]] = lambda outcomes, dry: {}


def main(script: Script, description: str, arguments: Sequence[str] | None = None) -> int:
    """Run a script; its exit code is 1 if anything failed and 2 where there is no GPU."""
    parser = argparse.ArgumentParser(prog=f"python -m {script.module}", description=description)
    parser.add_argument(
        "--dry-run", action="store_true",
        help="tiny shapes on the processor, by Triton's interpreter; the figures mean nothing",
    )  # fmt: skip
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for all of it")
    parser.add_argument("--only", default="*", help="items by name, with * and ?")
    parser.add_argument("--list", action="store_true", help="print the names of all items")
    parser.add_argument(
        "--out", type=Path, default=None,
        help="folder for the results; $OUT, else benchmarks/results",
    )  # fmt: skip
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    dry = options.dry_run
    if options.child is not None:
        dry = json.loads(options.child.read_text())["dry"]
        if dry:
            _mend_interpreter()
        run_items(script.items(dry), options.child)
        return 0
    items = [i for i in script.items(dry) if fnmatch.fnmatchcase(i.name, options.only)]
    if dry:  # one process: to start takes longer than to run
        items = [replace(item, group="dry run") for item in items]
    if options.list:
        print(*(item.name for item in items), sep="\n")
        return 0
    if not dry and not _has_gpu():
        print("torch sees no CUDA device here; --dry-run goes without one")
        return 2
    target = _target(script.name, options.out, dry)
    report = {"benchmark": script.name, **machine(dry), "budget_s": options.budget}

    def keep(outcomes: list[Outcome]) -> None:
        judged = script.judge({outcome.name: outcome for outcome in outcomes}, dry)
        if target is not None:
            done = {**report, "seconds": round(time.monotonic() - began, 1), **judged}
            _write(target, {**done, **as_json(outcomes)})

    began = time.monotonic()
    supervisor = Supervisor(
        script.module, items, budget=options.budget, dry=dry, on_end=keep,
    )  # fmt: skip
    outcomes = supervisor.run(1 if dry else script.at_once)
    return _close(script, outcomes, target, time.monotonic() - began, dry)


def _close(
    script: Script, outcomes: Sequence[Outcome], target: Path | None, seconds: float, dry: bool
) -> int:
    """Print what all of it came to; returns the exit code."""
    for name, said in script.judge({outcome.name: outcome for outcome in outcomes}, dry).items():
        for what, value in said.items():
            print(f"{name}: {what}: {value}")
    counts = as_json(outcomes)["counts"]
    for outcome in outcomes:
        if outcome.status in (FAILED, NOT_RUN):
            print(outcome.line())
    kind = "dry run, no figure means anything: " if dry else ""
    print(f"{kind}{', '.join(f'{n} {status}' for status, n in counts.items())} in {seconds:.0f} s")
    if target is not None:
        print(f"written to {target}")
    return 1 if counts[FAILED] else 0


def _target(name: str, folder: Path | None, dry: bool) -> Path | None:
    """Where results go; those of a dry run only where a folder is named."""
    named = folder or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
    if named is None and dry:
        return None
    chosen = named or RESULTS
    if dry and chosen.resolve() == RESULTS.resolve():
        raise SystemExit("a dry run writes nothing to benchmarks/results")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen / f"{name}{'-dry' if dry else ''}-{time.strftime('%Y-%m-%d', time.gmtime())}.json"


def _write(target: Path, report: Mapping[str, Any]) -> None:
    """All at once, so that whoever ends us leaves a whole file."""
    beside = target.with_suffix(".part")
    beside.write_text(json.dumps(report, indent=2) + "\n")
    beside.replace(target)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _mend_interpreter() -> None:
    from tests.support.triton_interpreter import mend

    mend()
