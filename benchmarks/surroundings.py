"""What a figure is worth nothing without: date, commit, machine, versions."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def surroundings(*packages: str) -> dict[str, Any]:
    """Where and when a benchmark runs, with the versions of the packages that matter to it."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "vectors": vectors(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),  # other work on the machine
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def _commit() -> str | None:
    """None where the sources came without their history, or without git."""
    command = ["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def vectors() -> str:
    """The vector extension that the CPU kernels use here, such as `avx2`."""
    from kernels.cpu.library import variant

    return variant() or "none"


def peak_rss_mb() -> float:
    """The most memory that this program had resident, on Linux.

    What `getrusage` tells begins with the peak of whoever started it.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return round(int(found[1]) / 1024, 1)


def save(report: dict[str, Any], *, to_file: bool) -> None:
    """Print a report and, if asked, keep it as `benchmarks/results/<benchmark>-<date>.json`."""
    text = json.dumps(report, indent=2)
    print(text)
    if to_file:
        target = RESULTS / f"{report['benchmark']}-{report['date'][:10]}.json"
        target.write_text(text + "\n")
        print(f"written to {target}", file=sys.stderr)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")
