"""What a figure of a GPU is worth nothing without: its name, its driver and all versions."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.surroundings import surroundings

_ROOT = Path(__file__).parents[2]
_FACTS = (
    "name",
    "driver_version",
    "memory.total",
    "clocks.max.sm",
    "clocks.max.mem",
    "power.limit",
)


def machine(dry: bool) -> dict[str, Any]:
    """Date, commit, processor, GPU and versions. No context is opened on the GPU for it."""
    found = surroundings()
    if found["commit"] is None:  # the sources may have come without their history
        found["commit"] = os.environ.get("PAGEMILL_COMMIT")
    found["versions"] = {
        name: _version(name)
        for name in ("torch", "triton", "transformers", "tokenizers", "numpy", "safetensors")
    }
    import torch

    found["cuda"] = torch.version.cuda
    found["gpu"] = {} if dry else _gpu()
    found["sources"] = _digest()
    found["dry"] = dry
    return found


def _version(name: str) -> str | None:
    """By the module, as the distribution of triton has several names."""
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError:
        return None


def _gpu() -> dict[str, str]:
    """What nvidia-smi says of the first GPU; empty where there is no such program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, "--id=0", f"--query-gpu={','.join(_FACTS)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (subprocess.SubprocessError, OSError):
        return {}
    values = [value.strip() for value in said.stdout.strip().split(",")]
    return dict(zip(_FACTS, values, strict=False))


def _digest() -> str:
    """Of the kernels and the engine that were measured, whatever their commit is called."""
    digest = hashlib.sha256()
    for package in ("kernels", "engine"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(str(path.relative_to(_ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
