"""Runs items in processes of their own, each within its time, all within the budget.

A kernel that hangs or breaks the device costs its item and the start of another process, and not
what comes after it. Whatever was not run is named.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu.child import BROKEN_DEVICE, MARK
from benchmarks.gpu.items import FAILED, NOT_RUN, Item, Outcome

# Importing torch, opening the device, and the first compilation.
_START_SECONDS = 60.0
_CUT = "the time was over"
_SECONDS_BETWEEN_LOOKS = 0.25


class Supervisor:
    """Runs items and prints a line for each.

    Args:
        module: started as `python -m MODULE --child FILE`; it calls `child.run_items`.
        items: in the order of their importance.
        budget: seconds for everything.
        dry: see `benchmarks.gpu.device`.
        wrapper: what the processes are started by.
        on_end: told of all outcomes so far whenever an item has ended.

    Attributes:
        outcomes: of the items that ended, by name.
    """

    def __init__(
        self,
        module: str,
        items: Sequence[Item],
        *,
        budget: float,
        dry: bool,
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        on_end: Callable[[list[Outcome]], None] = lambda outcomes: None,
    ) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._module = module
        self._items = tuple(items)
        self._ends = time.monotonic() + budget
        self._dry = dry
        self._wrapper = tuple(wrapper)
        ours = {**_ALWAYS, **(_DRY if dry else {}), **(environment or {})}
        self._environment = {**os.environ, **ours}
        self._on_end = on_end
        self._ending = threading.Lock()

    def run(self, at_once: int = 1) -> list[Outcome]:
        """Run all groups, so many at once; the outcomes come in the order of the items."""
        groups = list(dict.fromkeys(item.group for item in self._items))
        with ThreadPoolExecutor(at_once) as threads:
            try:
                for done in [threads.submit(self._run_group, group) for group in groups]:
                    done.result()
            except BaseException:
                self._ends = time.monotonic()  # the threads look at it
                raise
        return self._in_order()

    def _in_order(self) -> list[Outcome]:
        return [self.outcomes[item.name] for item in self._items if item.name in self.outcomes]

    def _run_group(self, group: str) -> None:
        left = [item for item in self._items if item.group == group]
        while left and self._seconds_left() > 0:
            self._run_process(left)
            left = [item for item in left if item.name not in self.outcomes]
        for item in left:
            self._end(Outcome(item.name, NOT_RUN, message=_CUT))

    def _run_process(self, items: Sequence[Item]) -> None:
        """Run items until the process ends; at least one has an outcome then."""
        with tempfile.TemporaryDirectory() as folder:
            task, log = Path(folder) / "task.json", Path(folder) / "log"
            known = {name: dict(outcome.figures) for name, outcome in self.outcomes.items()}
            names = [item.name for item in items]
            task.write_text(json.dumps({"items": names, "known": known, "dry": self._dry}))
            command = [*self._wrapper, sys.executable, "-m", self._module, "--child", str(task)]
            with log.open("wb") as errors:
                process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace",
                    env=self._environment, start_new_session=True,
                )  # fmt: skip
                lines: queue.Queue[str | None] = queue.Queue()
                reader = threading.Thread(target=_read, args=(process, lines))
                reader.start()
                try:
                    self._follow(process, lines, items, log)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    reader.join()

    def _follow(
        self,
        process: subprocess.Popen[str],
        lines: queue.Queue[str | None],
        items: Sequence[Item],
        log: Path,
    ) -> None:
        """Write down what a process says, until it ends or its item or the budget is over."""
        limits = {item.name: item.limit for item in items}
        current, limit = items[0].name, _START_SECONDS + items[0].limit
        began = time.monotonic()
        while True:
            spent = time.monotonic() - began
            try:
                line = lines.get(timeout=_SECONDS_BETWEEN_LOOKS)
            except queue.Empty:
                if spent <= limit and self._seconds_left() > 0:
                    continue
                if self._seconds_left() <= 0:
                    self._end(Outcome(current, NOT_RUN, spent, f"{_CUT} while it ran"))
                else:
                    message = f"it was not done after {limit:.0f} s"
                    self._end(Outcome(current, FAILED, spent, message))
                return
            if line is None:
                break
            if not line.startswith(MARK):
                continue
            said = json.loads(line[len(MARK) :])
            if "begun" in said:
                # The first item of a process pays for its start.
                extra = _START_SECONDS if current == said["begun"] else 0.0
                current, limit = said["begun"], limits[said["begun"]] + extra
                began = time.monotonic()
            else:
                self._end(
                    Outcome(said["ended"], said["status"], said["seconds"], said["message"],
                            said["figures"])
                )  # fmt: skip
        code = process.wait()
        unfinished = [item.name for item in items if item.name not in self.outcomes]
        if unfinished and code != BROKEN_DEVICE:
            words = log.read_text(errors="replace").strip().splitlines()[-8:]
            message = f"the process ended with exit code {code}: " + " | ".join(words)
            self._end(Outcome(unfinished[0], FAILED, time.monotonic() - began, message[-800:]))

    def _end(self, outcome: Outcome) -> None:
        with self._ending:
            self.outcomes[outcome.name] = outcome
            print(outcome.line(), flush=True)
            self._on_end(self._in_order())

    def _seconds_left(self) -> float:
        return self._ends - time.monotonic()


_ALWAYS = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# The interpreter reads its variable when triton is imported.
_DRY = {
    "TRITON_INTERPRET": "1",
    "PAGEMILL_GPU_KERNELS": "interpreter",
    "PAGEMILL_CPU_KERNELS": "none",
    "OMP_NUM_THREADS": "1",
}


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as said:
        for line in said:
            lines.put(line)
    lines.put(None)


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What is kept of a run: every result, and the names of those that failed or were not run."""
    return {
        "counts": {
            status: sum(outcome.status == status for outcome in outcomes)
            for status in ("passed", FAILED, NOT_RUN)
        },
        "failed": [outcome.name for outcome in outcomes if outcome.status == FAILED],
        "not_run": {o.name: o.message for o in outcomes if o.status == NOT_RUN},
        "results": {
            o.name: {
                "status": o.status, "seconds": round(o.seconds, 2),
                **({"message": o.message} if o.message else {}), **o.figures,
            }
            for o in outcomes
        },
    }  # fmt: skip
