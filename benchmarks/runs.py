"""One run of an engine on a workload, in a fresh process that is watched from here."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.registry import Peer

SAMPLE = 12  # prompts whose tokens are compared
_SECONDS_BETWEEN_LOOKS = 0.5  # each reads /proc, which costs the engine a little time


class RunFailed(Exception):
    """An engine ended without figures; says with what last words."""


@dataclass(frozen=True)
class Task:
    """What all runs of a comparison have in common.

    Attributes:
        model: folder of the model.
        threads: for every engine alike.
        timeout: seconds after which a run is given up.
    """

    model: Path
    workload: Path
    threads: int
    timeout: float


def run_once(peer: Peer, task: Task, rows: int | None = None) -> dict[str, Any]:
    """Figures of one run: the adapter's own, and peak memory of all its processes.

    Raises:
        RunFailed: it ended with an error, or not in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        output, log = Path(folder) / "report.json", Path(folder) / "log"
        command = [*peer.command(), "--model", str(task.model), "--workload", str(task.workload)]
        command += ["--threads", str(task.threads), "--output", str(output)]
        command += ["--sample", str(SAMPLE), *(["--rows", str(rows)] if rows else [])]
        variables = {"OMP_NUM_THREADS": str(task.threads), "HF_HUB_OFFLINE": "1"}
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                env={**os.environ, **variables, **peer.environ()},
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
            with _PeakMemory(process.pid) as peak:
                _wait(process, peer, task.timeout)
        if process.returncode or not output.exists():
            words = log.read_text(errors="replace").strip().splitlines()[-15:]
            raise RunFailed(
                f"{peer.name} ended with exit code {process.returncode}:\n" + "\n".join(words)
            )
        report: dict[str, Any] = json.loads(output.read_text())
    report["peak_memory_mb"] = max(report["peak_memory_mb"], round(peak.bytes / (1 << 20)))
    report["tokens_per_second"] = round(report["generated_tokens"] / report["generate_seconds"], 1)
    return report


def _wait(process: subprocess.Popen[bytes], peer: Peer, timeout: float) -> None:
    try:
        process.wait(timeout)
    except BaseException as reason:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()
        if isinstance(reason, subprocess.TimeoutExpired):
            raise RunFailed(f"{peer.name} was not done after {timeout:.0f} s") from reason
        raise


class _PeakMemory:
    """Largest resident memory of a process and its descendants together, seen in looks."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN_LOOKS):
            self.bytes = max(self.bytes, _resident(self._pid))


def _resident(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for member in family:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
