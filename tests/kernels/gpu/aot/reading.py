"""What a compiled kernel needs and consists of, read from the binary that Triton made.

Assembling the PTX once more would give other figures than those of what runs.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import triton
from triton import knobs

from tests.kernels.gpu.aot.row import Row
from tests.kernels.gpu.aot.targets import Target

# As in `/*0010*/  @!P0 LDG.E.128 R4, [R2.64] ;`
_SASS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+ )?\s*([A-Z][A-Z0-9_.]*)")
_GCN = re.compile(r"^\s+((?:v|s|ds|buffer|global|flat|scratch)_\w+)(.*)$", re.MULTILINE)


def read(kernel: Any, case: str, name: str, target: Target) -> Row:
    """Raises: RuntimeError, a tool is missing or prints something else than it used to."""
    figures = (_read_cuda if target.is_cuda else _read_hip)(kernel)
    metadata = kernel.metadata
    return Row(
        case=case,
        kernel=name,
        target=target.name,
        triton=triton.__version__,
        figures={
            "warps": metadata.num_warps,
            "stages": metadata.num_stages,
            "shared": metadata.shared,
            **figures,
        },
    )


def _read_cuda(kernel: Any) -> dict[str, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = _run("cuobjdump", "-res-usage", file.name)
        text = _run("nvdisasm", "-c", file.name)
    found = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    if found.keys() != {"REG", "STACK", "LOCAL"}:
        raise RuntimeError(f"cuobjdump -res-usage names no registers or stack: {usage!r}")
    operations = Counter(match.group(1) for match in _SASS.finditer(text))
    if not operations["EXIT"]:
        raise RuntimeError(f"nvdisasm gave no instructions that we can read: {text[:500]!r}")
    return {
        "regs": found["REG"],
        "stack": found["STACK"],
        "spills": found["LOCAL"],
        **_sass_counts(operations),
    }


def _sass_counts(operations: Counter[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for operation, number in operations.items():
        base, *modifiers = operation.split(".")
        if base in ("HMMA", "IMMA", "QMMA", "DMMA"):
            counts["mma"] += number
        elif base in ("HGMMA", "IGMMA", "QGMMA") or re.fullmatch(r"UTC\w*MMA", base):
            counts["wgmma"] += number
        elif base in ("LDGSTS", "UTMALDG", "UBLKCP"):
            counts["async"] += number
        elif base == "LDG":
            counts[_width(modifiers)] += number
        elif base in ("LDL", "STL"):
            counts["local"] += number
        elif base == "BAR":
            counts["bar"] += number
        elif base == "MUFU":
            counts["mufu"] += number
        if base != "NOP":
            counts["instr"] += number
    return dict(counts)


def _width(modifiers: list[str]) -> str:
    if "128" in modifiers or "256" in modifiers:
        return "ld16"
    if "64" in modifiers:
        return "ld8"
    narrow = {"U8", "S8", "U16", "S16"} & set(modifiers)
    return "ld1" if narrow else "ld4"


def _read_hip(kernel: Any) -> dict[str, int]:
    text = kernel.asm["amdgcn"]

    def figure(name: str) -> int:
        found = re.search(rf"\.{name}:?\s+(\d+)", text)
        if found is None:
            raise RuntimeError(f"the assembly of {kernel.metadata.name} names no {name}")
        return int(found.group(1))

    counts: Counter[str] = Counter()
    for operation, rest in _GCN.findall(text):
        counts["instr"] += 1
        if operation.startswith("v_mfma"):
            counts["mma"] += 1
        elif re.match(r"(buffer|global|flat)_load_", operation):
            counts[
                "async" if re.search(r"\blds\b", operation + rest) else _gcn_width(operation)
            ] += 1
        elif operation.startswith("scratch_"):
            counts["local"] += 1
        elif operation == "s_barrier":
            counts["bar"] += 1
        elif re.match(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", operation):
            counts["mufu"] += 1
    return {
        "regs": figure("vgpr_count"),
        "stack": figure("private_segment_fixed_size"),
        "spills": figure("vgpr_spill_count"),
        **counts,
    }


def _gcn_width(operation: str) -> str:
    for suffix, width in (("dwordx4", "ld16"), ("dwordx3", "ld8"), ("dwordx2", "ld8")):
        if operation.endswith(suffix):
            return width
    return "ld4" if operation.endswith("dword") else "ld1"


def _run(tool: str, *arguments: str) -> str:
    path = getattr(knobs.nvidia, tool).path
    if not Path(path).is_file():
        raise RuntimeError(
            f"triton {triton.__version__} brings no {tool} ({path}): install its wheel of PyPI, or "
            f"name one by TRITON_{tool.upper()}_PATH"
        )
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tool} {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr
