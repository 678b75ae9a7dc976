"""An installed pagemill at work, in an empty folder of a user who has nothing yet.

The wheel is the only thing in a new virtual environment; the other distributions are those of
the environment that runs the tests, lent through a `.pth` file. (Such a file is read for the
environment's own folder only, so no editable install comes along.) `make wheel-check` does it
all with real dependencies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import jobs
from tests.support.tiny_model import build_tiny_model
from tests.support.wheels import ROOMS, ROOT, pip

PROGRAMS = (("pagemill",), ("jobs",), ("python", "-m", "jobs"))
ENGINE = ("--num-blocks", "64", "--max-model-len", "128", "--threads", "1", "--max-tokens", "4")


@dataclass(frozen=True)
class Installed:
    """Programs of an environment, and the packages' place; run in an empty folder."""

    bin: Path
    packages: Path
    cwd: Path

    def run(self, program: str, *arguments: str, expect: int = 0) -> str:
        """What a program of the environment prints; nothing of our own environment is there."""
        home = self.cwd.parent / "home"
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.cwd, capture_output=True, text=True, timeout=240,
            env={"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8",
                 "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        assert done.returncode == expect, f"{done.args}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture
def from_wheel(wheel: Path, tmp_path: Path) -> Installed:
    environment = tmp_path / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120
    )
    python = environment / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    (packages,) = (environment / "lib").glob("python*/site-packages")
    lent = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "lent.pth").write_text("".join(f"{path}\n" for path in lent))
    return _installed(environment / "bin", packages, tmp_path)


@pytest.fixture
def editable(tmp_path: Path) -> Installed:
    return _installed(Path(sys.executable).parent, ROOT, tmp_path)


def _installed(programs: Path, packages: Path, tmp_path: Path) -> Installed:
    (tmp_path / "empty").mkdir()
    return Installed(programs, packages, tmp_path / "empty")


def check_programs(installed: Installed) -> None:
    """All names of the program are there, and what they run is what was installed."""
    where = f"import {', '.join(ROOMS)}; print({', '.join(f'{room}.__file__' for room in ROOMS)})"
    for file in installed.run("python", "-c", where).split():
        assert Path(file).is_relative_to(installed.packages)
    for program in PROGRAMS:
        assert installed.run(*program, "--version") == f"pagemill {jobs.__version__}\n"
    assert "is up to date" in installed.run("pagemill", "db", "upgrade")


def test_it_works_in_an_empty_folder(from_wheel, tiny_model):
    installed = from_wheel
    check_programs(installed)
    prompts = installed.cwd.parent / "prompts.jsonl"
    prompts.write_text('{"prompt": "one"}\n{"messages": [{"role": "user", "content": "two"}]}\n')
    answers = installed.cwd.parent / "answers.jsonl"
    installed.run("pagemill", "run", str(prompts), "--model", str(tiny_model), *ENGINE,
                  "-o", str(answers))  # fmt: skip
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [(row["row_index"], row["error"]) for row in rows] == [(0, None), (1, None)]
    assert all(row["completion_tokens"] > 0 for row in rows)

    for program in PROGRAMS:
        (job,) = json.loads(installed.run(*program, "list", "--json"))
        assert job["state"] == "completed"
    assert "is up to date" in installed.run("pagemill", "db", "check")
    assert not list(installed.cwd.iterdir()), "it left something in the user's folder"


def test_an_editable_one_is_found_in_an_empty_folder(editable):
    """What it does when it works is what nearly all other tests see."""
    check_programs(editable)
    for program in PROGRAMS:
        assert json.loads(editable.run(*program, "list", "--json")) == []
    assert "is up to date" in editable.run("pagemill", "db", "check")
    assert not list(editable.cwd.iterdir()), "it left something in the user's folder"
