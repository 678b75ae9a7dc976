"""Every command of the README is run: as written, in its order, on the real small model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deployment import Deployment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


MAKE = [b for b in blocks("bash") if all(line.startswith("make ") for line in b.splitlines())]
SHELL = [b for b in blocks("bash") if b not in MAKE]


def test_every_block_is_of_a_kind_that_is_checked():
    fences = re.findall(r"^```(\w+)$", README, re.MULTILINE)
    assert set(fences) == {"bash", "python", "text"}
    assert MAKE
    assert SHELL


@pytest.mark.parametrize("command", sorted({line for b in MAKE for line in b.splitlines()}))
def test_make_targets_are_run_by_ci(command):
    assert re.search(rf"^{command}$", CI, re.MULTILINE), f".ci/run does not run `{command}`"


def test_the_session_runs_as_written(tmp_path):
    """The shell blocks and then the Python blocks, in a folder like a fresh clone."""
    deployment = Deployment(tmp_path / "home")
    place = tmp_path / "clone"
    place.mkdir()
    (place / "examples").symlink_to(ROOT / "examples")
    bin_folder = Path(sys.executable).parent
    env = {**deployment.env, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    printed = run("bash", "-eu", "-c", "\n".join(SHELL))
    assert '"custom_id":"ticket-0003"' in printed.replace('": ', '":')
    assert (place / "answers.parquet").exists()
    for block in blocks("python"):
        assert "ticket-0001" in run(sys.executable, "-c", block)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target


def test_the_columns_it_names_are_those_of_the_output():
    from jobs.schema import OUTPUT

    for name in OUTPUT.names:
        assert f"`{name}`" in README, name


def test_its_figures_are_those_of_the_recorded_benchmarks():
    import json

    def newest(name: str) -> dict:
        return json.loads(max((ROOT / "benchmarks" / "results").glob(f"{name}-*.json")).read_text())

    submit, cache = newest("submit")["results"], newest("prefix_cache")
    for shape in ("prompts", "chats"):
        assert f"{submit[shape]['rows_per_second']:,} rows/s" in README
        assert f"{submit[shape]['peak_rss_mb']:.0f} MB" in README
    assert f"{cache['demo_cached_share']:.1%}" in README
    assert f"{cache['job_ratio']:.1f} times as long" in README
    assert f"({cache['command_ratio']:.1f} times with start-up)" in README
