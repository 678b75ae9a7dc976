"""The GPUs that the driver tells of. What torch makes of them, `worker.doctor` says."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from jobs.doctor.findings import Finding, fault, warning, well

ADVICE = "the driver hangs: look into `dmesg` for NVRM and Xid, and restart the machine"
_PROGRAM = "nvidia-smi"
_SECONDS = 15.0
_QUERY = "index,name,driver_version,memory.total,memory.used"
# Where the kernel has the driver, whatever programs are installed.
_DRIVER = Path("/proc/driver/nvidia/version")


def check_gpu() -> Iterator[Finding]:
    """What `nvidia-smi` says."""
    program = shutil.which(_PROGRAM)
    if program is None:
        yield _no_program(_DRIVER.exists())
        return
    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        yield fault("gpu", f"{program} said nothing for {_SECONDS:g} s", ADVICE)
        return
    except OSError as error:
        yield fault("gpu", f"{program} cannot be run: {error.strerror}", "reinstall the driver")
        return
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())
        yield fault(
            "gpu",
            f"{_PROGRAM} failed ({done.returncode}): {said}",
            "load the driver (`modprobe nvidia`), restart after an upgrade of it, or give the "
            "container its GPUs (`docker run --gpus all`)",
        )
        return
    yield from _gpus(done.stdout)


def _no_program(has_driver: bool) -> Finding:
    if has_driver:
        return warning(
            "gpu",
            f"there is an NVIDIA driver, but no {_PROGRAM} on the PATH",
            "nothing, if torch finds the GPUs below; else install the driver's programs",
        )
    return well("gpu", f"none: no NVIDIA driver and no {_PROGRAM}; workers compute on the CPU")


def _gpus(listed: str) -> Iterator[Finding]:
    lines = [[cell.strip() for cell in line.split(",")] for line in listed.splitlines() if line]
    gpus = [cells for cells in lines if len(cells) == len(_QUERY.split(","))]
    if not gpus:
        yield fault(
            "gpu",
            f"{_PROGRAM} lists no GPU",
            "give the container its GPUs (`docker run --gpus all`), or look into `dmesg`",
        )
    for index, name, driver, total, used in gpus:
        memory = f", {used} of {total} MiB used" if total.isdecimal() else ""
        yield well("gpu", f"{index}: {name}, driver {driver}{memory}")
