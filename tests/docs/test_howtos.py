"""What the how-to pages say of metrics, of units and of compose files is so."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from jobs.cli.app import app
from jobs.states import JobState
from jobs.submission import MAX_ROWS
from tests.support.markdown_pages import ROOT, blocks
from tests.support.named_tests import page
from tests.worker.test_metrics import SNAPSHOT
from worker.metrics import WorkerCollector
from worker.options import WorkerOptions

pytestmark = pytest.mark.quick

GPUS = "docs/howto/several-gpus.md"


def only(page: str, language: str) -> str:
    (block,) = (block for block in blocks(page) if block.language == language)
    return block.code


def test_expressions_ask_for_metrics_that_there_are() -> None:
    families = list(WorkerCollector(lambda: SNAPSHOT, "m").collect())
    names = {sample.name for family in families for sample in family.samples}
    expressions = [b.code for b in blocks("docs/howto/metrics.md") if b.language == "promql"]
    assert len(expressions) >= 7
    for expression in expressions:
        asked = set(re.findall(r"pagemill_\w+", expression))
        assert asked
        assert asked <= names
        for pair in ("()", "[]", "{}"):
            assert expression.count(pair[0]) == expression.count(pair[1])
    text = set(re.findall(r"pagemill_\w+", page("howto/metrics.md")))
    assert text - names <= {"pagemill_"}


def test_the_unit_starts_a_worker_and_stops_as_workers_end() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(only(GPUS, "ini"))
    program, command, *options = shlex.split(unit["Service"]["ExecStart"].replace("%i", "1"))
    assert (Path(program).name, command) == ("pagemill", "worker")
    parsed = WorkerOptions.parse(options, {})
    assert (parsed.metrics_port, parsed.log_format) == (9401, "json")
    table = page("operations.md").split("| code | | start it again? |")[1].split("\n\n")[0]
    never = re.findall(r"^\| (\d+) \| .* \| (?:no|no, .*|after .*) \|$", table, re.MULTILINE)
    stopped = unit["Service"]["RestartPreventExitStatus"].split()
    assert sorted(stopped) == sorted(set(never) - {"0"})


@pytest.mark.slow
def test_another_gpu_is_served_as_the_first_one_is(tmp_path: Path) -> None:
    text = only(GPUS, "yaml")
    (tmp_path / "compose.gpus.yaml").write_text(text)
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
         tmp_path / "compose.gpus.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout

    def worker(name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((ROOT / "docker" / name).read_text())
        return dict(found["services"]["worker"])

    first = worker("compose.yaml") | worker("compose.cuda.yaml")
    second = yaml.safe_load(text)["services"]["worker-1"]
    (device,) = second.pop("deploy")["resources"]["reservations"]["devices"]
    assert device.pop("device_ids") == ["1"]
    (of_first,) = first.pop("deploy")["resources"]["reservations"]["devices"]
    assert of_first.pop("count") == 1
    assert device == of_first
    del first["build"]  # the image is that of the first worker
    assert second == first


def test_options_that_one_moves_to_are_there() -> None:
    table = page("howto/migrating.md").split("Of the options:")[1].split("What is different:")[0]
    rows = re.findall(r"^\| `(.*?)` \|(.*)\|$", table, re.MULTILINE)
    assert len(rows) >= 10
    commands = get_command(app).commands  # type: ignore[attr-defined]
    known = {
        option
        for name in ("run", "worker")
        for parameter in commands[name].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for _, ours in rows:
        assert set(re.findall(r"(--[\w-]+)", ours)) <= known, ours


def test_a_batch_object_has_its_counterparts() -> None:
    text = page("howto/migrating.md")
    keys = re.findall(r"^\| `[^|]+ \| (.*) \|$", text.split("The batch object")[1], re.MULTILINE)
    named = set(re.findall(r"`([a-z_]+(?:\.[a-z]+)?)`", " ".join(keys[:7])))
    (job,) = (json.loads(b.code) for b in blocks("docs/cli.md") if '"fingerprint"' in b.code)
    for name in named - {"queued"}:
        key, _, inner = name.partition(".")
        assert key in job, name
        assert not inner or inner in job[key], name
    assert {state.value for state in JobState} >= {
        "validating", "in_progress", "finalizing", "completed", "failed", "cancelling",
        "cancelled", "expired", "queued",
    }  # fmt: skip
    assert f"at most {MAX_ROWS:,} rows" in text
