"""The kernels' checks under NVIDIA's compute-sanitizer, where it is found.

memcheck looks for accesses outside of what is allocated, racecheck for races in shared memory. Both
slow kernels down many times, so a few checks of each kind are run, of small shapes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.child import MARK
from benchmarks.gpu.items import PASSED, Item, NotHere, Surroundings

# The time that a tool has, and all that it runs in it.
_SECONDS = 200.0
_CHOSEN = (
    "attention bf16, mixed", "attention bf16, 64 decodes that share 512",
    "attention bf16 on e4m3, mixed", "attention float32, decodes", "attention bf16, prompts",
    "rope_kv_write bf16, 5 tokens, Qwen3-0.6B", "rope_kv_write bf16 to int8, 5 tokens, Llama-3-8B",
    "copy of 1 blocks bf16", "copy of 1 blocks bf16 to int8", "swap of 1 blocks bf16",
    "rms_norm bf16, 3 x 576", "add_rms_norm bf16, 3 x 576", "silu_and_mul bf16, 3 x 576",
    "embed, select_rows bf16, 3 x 576", "logprobs bf16, 5 of 300",
    "sampling bf16, all rules, of 300", "penalties of 300", "token biases of 300",
    "mask bf16 of 300",
)  # fmt: skip
_DRY = ("rms_norm bf16, 3 x 576",)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


class Sanitizer:
    """One tool of compute-sanitizer.

    Attributes:
        command: what to run a program by.
    """

    def __init__(self, tool: str) -> None:
        program = find_program()
        if program is None:
            raise NotHere("compute-sanitizer is neither on the PATH nor in CUDA's folder")
        self.command = [program, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
        if tool == "memcheck":
            # What torch asks of the driver and may be refused is no error of a kernel.
            self.command += ["--report-api-errors", "no"]

    def errors(self, output: str) -> int:
        """How many the tool found; from its summary."""
        found = _SUMMARY.findall(output)
        assert found, f"the tool gave no summary: {output[-400:]}"
        return sum(map(int, found))


class NoSanitizer:
    """Its stand-in, which runs a program as it is."""

    command: tuple[str, ...] = ()

    def errors(self, output: str) -> int:
        return 0


def find_program() -> str | None:
    """compute-sanitizer, on the PATH or where CUDA is installed."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [f"{home}/{part}" for home in homes if home for part in ("bin", "compute-sanitizer")]
    return shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=os.pathsep.join(folders)
    )


def items(dry: bool) -> list[Item]:
    return [
        Item(f"compute-sanitizer {tool}", f"sanitizer {tool}", partial(_run, tool), _SECONDS + 20)
        for tool in (("memcheck",) if dry else ("memcheck", "racecheck"))
    ]


def _run(tool: str, given: Surroundings) -> dict[str, Any]:
    dry = given.device.dry
    sanitizer: Sanitizer | NoSanitizer = NoSanitizer() if dry else Sanitizer(tool)
    names = list(_DRY if dry else _CHOSEN)
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder) / "task.json"
        task.write_text(json.dumps({"items": names, "known": {}, "dry": dry}))
        command = [*sanitizer.command, sys.executable, "-m", "tests.gpu", "--child", str(task)]
        # Torch's own pool would hide what lies outside of a tensor but within its memory.
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", timeout=_SECONDS, env=environment, check=False,
            )  # fmt: skip
            output, ended = done.stdout, True
        except subprocess.TimeoutExpired as late:
            output, ended = (late.stdout or b"").decode(errors="replace"), False
    outcomes = _outcomes(output)
    failed = [name for name, (status, _) in outcomes.items() if status != PASSED]
    assert not failed, f"{failed}: {outcomes[failed[0]][1]}; {_first_report(output)}"
    if not ended:  # the summary is missing, but what was reported is there
        assert "========= Invalid" not in output, _first_report(output)
        assert "hazard" not in output, _first_report(output)
        missing = [name for name in names if name not in outcomes]
        raise NotHere(f"after {_SECONDS:.0f} s, sound so far, without {missing}")
    found = sanitizer.errors(output)
    assert not found, f"{found} errors: {_first_report(output)}"
    missing = [name for name in names if name not in outcomes]
    assert not missing, f"not run: {missing}: {output[-400:]}"
    return {"checks": len(outcomes), "errors": found}


def _outcomes(output: str) -> dict[str, tuple[str, str]]:
    """Status and message of each check that ended."""
    found = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            said = json.loads(line[len(MARK) :])
            if "ended" in said:
                found[said["ended"]] = (said["status"], said["message"])
    return found


def _first_report(output: str) -> str:
    """The first lines that the tool itself wrote, but its greeting."""
    lines = [line for line in output.splitlines() if line.startswith("=========")]
    return " | ".join(line.lstrip("= ") for line in lines[1:9])[:500]
