"""Building and installing our own wheel, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What a build imports from the source leaves no compiled file there.
UNCOMPILED = {"PYTHONDONTWRITEBYTECODE": "1"}
ROOMS = ("engine", "jobs", "kernels", "migrations", "worker")


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        capture_output=True, text=True, timeout=300, env=os.environ | UNCOMPILED,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"


def build_wheel(source: Path, into: Path) -> Path:
    """The wheel of a source tree, built by the setuptools that are installed here."""
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into), str(source))
    (built,) = into.glob("pagemill-*.whl")
    return built


def copy_of_the_source(folder: Path) -> None:
    """Copy what git knows, or would take: no leftover of a build gets into a wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
