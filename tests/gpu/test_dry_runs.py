"""Both scripts of the GPU run here, every check and measurement of them, by the interpreter.

They have only what a machine is sure to have on which somebody computes: no queue, no database,
no pytest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import peers, targets
from benchmarks.gpu.__main__ import items as measurements
from benchmarks.gpu.device import Stub
from benchmarks.gpu.items import PASSED, Outcome
from benchmarks.gpu.random_model import load, write_files
from benchmarks.gpu.shapes import shapes
from tests.gpu.__main__ import items as checks
from tests.gpu.sanitizer_checks import _CHOSEN, Sanitizer

ROOT = Path(__file__).parents[2]


def dry_run(module: str, folder: Path) -> dict[str, Any]:
    path = os.pathsep.join([str(Path(__file__).parent / "bare"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", module, "--dry-run", "--out", str(folder), "--budget", "500"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        timeout=550, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    (file,) = folder.iterdir()
    report: dict[str, Any] = json.loads(file.read_text())
    assert report["dry"] is True
    assert report["not_run"] == {}
    assert str(report["counts"]["passed"]) in done.stdout
    return report


def test_every_check_passes_in_the_interpreter(tmp_path: Path) -> None:
    report = dry_run("tests.gpu", tmp_path)
    assert report["results"].keys() == {item.name for item in checks(True)}


def test_every_measurement_runs_in_the_interpreter(tmp_path: Path) -> None:
    report = dry_run("benchmarks.gpu", tmp_path)
    assert report["results"].keys() == {item.name for item in measurements(True)}
    judged = {target["reached"] for target in report["targets"].values()}
    assert judged == {"not measured"}, "nothing is claimed of a dry run"


def test_a_real_run_measures_what_there_are_targets_for() -> None:
    names = {item.name for item in measurements(False)}
    assert {target.item for target in targets.targets()} <= names
    assert len(checks(False)) > len(checks(True))


def test_what_the_sanitizer_is_given_are_checks() -> None:
    assert set(_CHOSEN) <= {item.name for item in checks(False)}


def test_a_target_is_reached_from_its_figure_on() -> None:
    wanted = next(targets.targets())

    def judged(figure: float) -> Any:
        outcome = Outcome(wanted.item, PASSED, figures={wanted.figure: figure})
        found = targets.judge({wanted.item: outcome}, dry=False)["targets"]
        return found[f"{wanted.item}: {wanted.figure}"]["reached"]

    assert judged(wanted.least) is True
    assert judged(wanted.least - 0.001) is False


@pytest.mark.parametrize("number", [0, 1])
def test_both_libraries_have_the_same_random_model(number: int, tmp_path: Path) -> None:
    shape, device = shapes(dry=True)[number], Stub()
    ours = dict(load(write_files(shape, tmp_path), device).model.checkpoint_tensors())
    theirs = dict(peers._model(shape, device).named_parameters())
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_the_summary_of_the_sanitizer_is_read() -> None:
    sanitizer = Sanitizer.__new__(Sanitizer)
    assert sanitizer.errors("========= ERROR SUMMARY: 0 errors\n") == 0
    assert sanitizer.errors("========= ERROR SUMMARY: 3 errors\n") == 3
    said = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n"
    assert sanitizer.errors(said) == 2
    with pytest.raises(AssertionError, match="no summary"):
        sanitizer.errors("Error: no CUDA device")
