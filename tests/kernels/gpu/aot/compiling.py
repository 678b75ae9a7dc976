"""Compiles what a launch function launches, for a chip that need not be there.

A stand-in driver names the chip, and `kernel[grid](...)` compiles instead of launching. Triton
makes of the arguments what it makes of them on the device: constants, the number of warps and
stages, and which of the others are divisible by 16 or equal to 1. (A tensor of the device `meta`
begins at address 0, as allocations of a device begin at multiples of 512.)

Needs a process without TRITON_INTERPRET, and one process for each target: launch functions may
remember what they learned of the device.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tests.kernels.gpu.aot.case import Case
from tests.kernels.gpu.aot.reading import read
from tests.kernels.gpu.aot.row import Row
from tests.kernels.gpu.aot.targets import TARGETS, Target


class _StandIn:
    """The few methods that Triton asks of a driver before it launches."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target.triton

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


def compile_cases(target_name: str, names: Iterable[str]) -> list[Row]:
    """A row for each kernel of each case; one that does not compile has the reason in it."""
    target, cases = TARGETS[target_name], all_cases()
    compiled = _stand_in_for(target)
    rows = []
    for name in names:
        compiled.clear()
        failure = None
        try:
            cases[name].call()
        except Exception as error:  # whatever a compiler raises: it becomes the row
            failure = _reason(error)
        rows += _rows(name, target, compiled)
        if failure is not None:
            rows.append(Row.of_failure(name, target.name, triton.__version__, failure))
    return rows


def all_cases() -> dict[str, Case]:
    """The CASES of all files of this folder, by name."""
    found: dict[str, Case] = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        module = importlib.import_module(f"tests.kernels.gpu.aot.{path.stem}")
        for case in getattr(module, "CASES", ()):
            if case.name in found:
                raise ValueError(f"two cases are called {case.name!r}; rename one in {path.name}")
            found[case.name] = case
    return found


def _stand_in_for(target: Target) -> list[Any]:
    """From now on this process compiles for `target`; returns the list that it fills."""
    compiled: list[Any] = []
    launch = JITFunction.run

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **constants: Any) -> Any:
        kernel = launch(self, *arguments, grid=grid, warmup=True, **constants)
        compiled.append(kernel)
        return kernel

    JITFunction.run = run
    (driver if hasattr(driver, "set_active") else driver.driver).set_active(_StandIn(target))
    major, minor = target.capability
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(
        major=major,
        minor=minor,
        multi_processor_count=target.multiprocessors,
        shared_memory_per_block_optin=target.shared,
        warp_size=target.triton.warp_size,
        gcnArchName=target.name,
    )
    return compiled


def _rows(case: str, target: Target, compiled: list[Any]) -> list[Row]:
    """Each program once, those of a kernel that differ by constants numbered."""
    rows, seen, count = [], set(), Counter[str]()
    for kernel in compiled:
        if kernel.hash in seen:
            continue
        seen.add(kernel.hash)
        name = kernel.metadata.name
        count[name] += 1
        numbered = name if count[name] == 1 else f"{name}#{count[name]}"
        rows.append(read(kernel, case, numbered, target))
    return rows


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:150]
