"""Every command of the README is run: as written, in its order, on the real small model."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.database import Database
from jobs.store import Store
from tests.support.deployment import Deployment, deployed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()


def blocks(language: str, section: str | None = None) -> list[str]:
    """The blocks of a language, in all of the page or under one heading."""
    text = README if section is None else README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


ON_SERVERS = "On Redis and PostgreSQL"

MAKE = [b for b in blocks("bash") if all(line.startswith("make ") for line in b.splitlines())]
SERVERS = blocks("bash", section=ON_SERVERS)
SHELL = [b for b in blocks("bash") if b not in MAKE + SERVERS]


def test_every_block_is_of_a_kind_that_is_checked():
    fences = re.findall(r"^```(\w+)$", README, re.MULTILINE)
    assert set(fences) == {"bash", "python", "text"}
    assert MAKE
    assert SHELL
    assert SERVERS


@pytest.mark.parametrize("command", sorted({line for b in MAKE for line in b.splitlines()}))
def test_make_targets_are_run_by_ci(command):
    assert re.search(rf"^{command}$", CI, re.MULTILINE), f".ci/run does not run `{command}`"


class Clone:
    """A folder like a fresh clone, and the programs of this environment."""

    def __init__(self, folder: Path, deployment: Deployment) -> None:
        self.folder = folder
        self.folder.mkdir()
        (self.folder / "examples").symlink_to(ROOT / "examples")
        bin_folder = Path(sys.executable).parent
        self.env = {**deployment.env, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def test_the_session_runs_as_written(tmp_path):
    """The shell blocks and then the Python blocks."""
    clone = Clone(tmp_path / "clone", Deployment(tmp_path / "home"))
    printed = clone.run("bash", "-eu", "-c", "\n".join(SHELL))
    assert '"custom_id":"ticket-0003"' in printed.replace('": ', '":')
    assert (clone.folder / "answers.parquet").exists()
    assert "verdict: regressed\nended with 10\n" in printed
    assert "regressed" in (clone.folder / "nightly.html").read_text()
    batch = (clone.folder / "batch_output.jsonl").read_text().splitlines()
    assert [json.loads(line)["error"] for line in batch] == [None] * 6
    for block in blocks("python"):
        assert "ticket-0001" in clone.run(sys.executable, "-c", block)


def test_the_session_on_servers_runs_as_written(tmp_path):
    """The names that the blocks give defaults for lead to servers that tests may use."""
    with deployed(tmp_path / "home", "postgresql+redis") as deployment:
        clone = Clone(tmp_path / "clone", deployment)
        clone.env["REDIS_URL"] = clone.env.pop("PAGEMILL_BROKER_URL")
        clone.env["POSTGRES_URL"] = clone.env.pop("PAGEMILL_DATABASE_URL")
        clone.env["SHARED_FOLDER"] = clone.env.pop("PAGEMILL_STORAGE_URL")
        printed = clone.run("bash", "-eu", "-c", "\n".join(SERVERS))
        answers = pq.read_table(clone.folder / "tickets.parquet")
        assert answers["custom_id"].to_pylist() == [f"ticket-{n:04d}" for n in range(1, 25)]
        assert all(answers["text"].to_pylist())
        assert "normalized" in (clone.folder / "nightly.html").read_text()
        assert printed.count("smollm2-135m") >= 2  # of `workers`
        database = Database(deployment.settings.database_url)
        left = Store(database).workers(all=True)
        database.close()
        assert [worker.status.state for worker in left] == ["stopped"] * 2


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target


def test_the_columns_it_names_are_those_of_the_output():
    from jobs.schema import OUTPUT

    for name in OUTPUT.names:
        assert f"`{name}`" in README, name


def newest(name: str) -> dict:
    """The last recorded result of a benchmark."""
    return json.loads(max((ROOT / "benchmarks" / "results").glob(f"{name}-*.json")).read_text())


def test_its_figures_are_those_of_the_recorded_benchmarks():
    submit, cache = newest("submit")["results"], newest("prefix_cache")
    for shape in ("prompts", "chats"):
        assert f"{submit[shape]['rows_per_second']:,} rows/s" in README
        assert f"{submit[shape]['peak_rss_mb']:.0f} MB" in README
    assert f"{cache['demo_cached_share']:.1%}" in README
    assert f"{cache['job_ratio']:.1f} times as long" in README
    assert f"({cache['command_ratio']:.1f} times with start-up)" in README


COMPARED = ("pagemill", "pagemill-float16-cache", "openvino-primed")
WORKLOADS = {
    "w1_shared_system_prompt": "one system prompt, 256 chats",
    "w2_distinct_prompts": "nothing shared, 128 prompts",
    "few-shot": "1,100 shared tokens, 200 short answers",
}
PROCESSORS = {"avx512": "AVX-512", "avx2": "AVX2"}


def test_its_comparisons_are_the_newest_recorded_ones():
    measured = [
        (name, vectors)
        for name, vectors in itertools.product(WORKLOADS, PROCESSORS)
        if any((ROOT / "benchmarks" / "results").glob(f"compare-{name}-{vectors}-*.json"))
    ]
    assert {name for name, _ in measured} == set(WORKLOADS)
    for name, vectors in measured:
        found = newest(f"compare-{name}-{vectors}")["engines"]
        speeds = [found[engine]["tokens_per_second"] for engine in COMPARED]
        cells = [
            f"{speed:.0f} ({found[engine]['share_of_ceiling']:.0%}, "
            f"{found[engine]['peak_memory_mb'] / 1000:.1f} GB)"
            for engine, speed in zip(COMPARED, speeds, strict=True)
        ]
        ratios = f"{speeds[0] / speeds[2]:.2f}, {speeds[1] / speeds[2]:.2f}"
        row = [WORKLOADS[name], PROCESSORS[vectors], *cells, ratios]
        assert f"| {' | '.join(row)} |" in README


def test_its_start_and_its_steps_are_the_newest_recorded_ones():
    seconds = newest("startup")["first_token_seconds"]
    assert f"{seconds['later']:.1f} s" in README
    assert f"{seconds['first_time']:.1f} s" in README
    for case in ("64 x 550", "256 x 500, 416 shared"):
        ways = newest("decode_step")["milliseconds"].values()
        cells = [f"{way[case]['whole step']:.0f} ({way[case]['attention']:.0f})" for way in ways]
        assert f"| {case} | {' | '.join(cells)} |" in README
