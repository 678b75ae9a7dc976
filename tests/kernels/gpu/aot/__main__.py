"""Compile the cases, hold them against the limits and the committed table, or write it anew."""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import torch
import triton

from tests.kernels.gpu.aot import page, table
from tests.kernels.gpu.aot.compiling import all_cases, compile_cases
from tests.kernels.gpu.aot.limits import complaints
from tests.kernels.gpu.aot.row import Row, header
from tests.kernels.gpu.aot.targets import TARGETS

SAVE = "make aot AOT_SAVE=1"


def main() -> int:
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        print("TRITON_INTERPRET is set: nothing can be compiled; unset it", file=sys.stderr)
        return 2
    asked, cases = _arguments(), all_cases()
    names = [name for name, case in cases.items() if not asked.pinned or case.pinned]
    if asked.cases:
        names = [name for name in names if any(part in name for part in asked.cases)]
    if not names:
        print("no case has such a name", file=sys.stderr)
        return 2
    rows = _compile(asked.targets, names, asked.processes)
    if asked.print:
        print("\n".join([header(), *(row.line() for row in rows)]))
    wrong = complaints(rows, cases)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if asked.save:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        table.save(rows, cases, f"{today}, torch {torch.__version__.split('+')[0]}")
        page.write(table.load())
    elif not _agrees(rows):
        return 1
    print(f"triton {triton.__version__}: {len(names)} cases, {len(rows)} kernels compiled")
    return 1 if wrong else 0


def _agrees(rows: list[Row]) -> bool:
    """Whether the table says the same, as far as it knows this version; says it where not."""
    if triton.__version__ not in {row.triton for row in table.load()}:
        print(f"{table.PATH.name} has no rows of triton {triton.__version__} to compare with")
        return True
    diff = table.differences(rows)
    if diff:
        print(
            f"{diff}\nThe kernels are no longer compiled to what {table.PATH.name} says. If that "
            f"is meant, `{SAVE}` writes it anew.",
            file=sys.stderr,
        )
    return not diff


def _compile(targets: list[str], names: list[str], processes: int) -> list[Row]:
    """Each target has a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        futures = [pool.submit(compile_cases, target, names) for target in targets]
        rows = [row for future in futures for row in future.result()]
    return sorted(rows, key=lambda row: row.key)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.kernels.gpu.aot", description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--pinned", action="store_true", help="only what `make test` compiles")
    parser.add_argument("--cases", nargs="+", help="only those whose names contain one of these")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--print", action="store_true", help="print the rows")
    parser.add_argument("--save", action="store_true", help="write them to the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
