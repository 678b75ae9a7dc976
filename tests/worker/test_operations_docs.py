"""docs/operations.md against the code: every metric, event, field, state and exit code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from tests.worker.test_metrics import SNAPSHOT
from worker.errors import WorkerError
from worker.metrics import WorkerCollector
from worker.options import WorkerOptions
from worker.snapshot import WorkerState
from worker.workload import Outcome

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
FAMILIES = list(WorkerCollector(lambda: SNAPSHOT, "m").collect())
METRIC = re.compile(r"pagemill_[a-z_]+")


def tables() -> list[dict[str, list[str]]]:
    """Each table of the page: the other cells of a row by its first cell, without backticks."""
    found: list[dict[str, list[str]]] = []
    former = ""
    for line in PAGE.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            if not former.startswith("|"):
                found.append({})
            first, *others = (cell.strip() for cell in line.strip("|").split(" | "))
            found[-1][first.strip("`| ")] = others
        former = line
    return found


def table(first: str) -> dict[str, list[str]]:
    (found,) = (rows for rows in tables() if first in rows)
    return found


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def exposed(name: str, kind: str) -> str:
    """The name in the exposition of a metric that prometheus_client calls `name`."""
    return name + {"counter": "_total", "info": "_info"}.get(kind, "")


def test_every_metric_is_in_the_table_with_its_type_and_nothing_else_is() -> None:
    page = {name: kind for name, (kind, *_) in table("pagemill_rows_total").items()}
    code = {exposed(f.name, f.type): "gauge" if f.type == "info" else f.type for f in FAMILIES}
    assert {name: kind for name, kind in page.items() if name != "metric"} == code


def test_every_label_is_explained() -> None:
    rows = table("pagemill_rows_total")
    for family in FAMILIES:
        for sample in family.samples:
            for label, value in sample.labels.items():
                told = rows[exposed(family.name, family.type)][1]
                assert label == "le" or f"`{label}`" in told
                if label in ("outcome", "state"):
                    assert f"`{value}`" in told


def events() -> dict[str, set[str]]:
    """Fields by event, from every `extra={"event": …}` in the source."""
    found: dict[str, set[str]] = {}
    names = (
        "attempts",
        "finalize",
        "periodic",
        "sweep",
        "notifications/delivering",
        "schedules/ticking",
    )
    ours = [ROOT / "jobs" / f"{name}.py" for name in names]
    ours += [ROOT / "engine" / f"{name}.py" for name in ("micro_batches", "process")]
    for path in [*(ROOT / "worker").glob("*.py"), *ours]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Dict):
                continue
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "event" not in keys:
                continue
            name = node.values[keys.index("event")]
            if isinstance(name, ast.Name):  # what a child tells its parent is no log
                continue
            if isinstance(name, ast.Constant):
                called = [name.value]
            else:  # f"chunk_{outcome}"
                assert ast.unparse(name) == "f'chunk_{outcome}'"
                called = [f"chunk_{outcome}" for outcome in Outcome if outcome != Outcome.FAILED]
            for each in called:
                found.setdefault(each, set()).update(set(keys) - {"event"})
    return found


def test_every_event_is_in_the_table_with_its_fields() -> None:
    rows = table("chunk_leased")
    rows.pop("event")
    assert rows.keys() == events().keys()
    for name, fields in events().items():
        told = rows[name][1]
        if "the same fields" in told:
            told = rows["chunk_done"][1]
        assert fields == set(re.findall(r"`([a-z_]+)`", told)) - {"heartbeat", "sweeper"}, name


def test_every_state_is_in_the_table() -> None:
    assert table("starting").keys() - {"state"} == set(WorkerState)


def test_every_exit_code_is_in_the_table() -> None:
    def codes(error: type[WorkerError]) -> set[int]:
        return {error.exit_code}.union(*(codes(kind) for kind in error.__subclasses__()))

    assert {str(code) for code in codes(WorkerError) | {0, 69}} <= table("69").keys()


def test_every_setting_on_the_page_is_read_somewhere() -> None:
    source = "".join((ROOT / p).read_text() for p in ("worker/options.py", "jobs/settings.py"))
    for name in set(re.findall(r"PAGEMILL_[A-Z_]+", PAGE)):
        assert name in source or name.removeprefix("PAGEMILL_").lower() in source


def test_the_rules_are_yaml_and_ask_for_metrics_that_there_are() -> None:
    scrape, rules = map(yaml.safe_load, blocks("yaml"))
    assert scrape["scrape_configs"][0]["job_name"] == "pagemill"
    names = {exposed(f.name, f.type) for f in FAMILIES} | {
        s.name for f in FAMILIES for s in f.samples
    }
    (group,) = rules["groups"]
    for rule in group["rules"]:
        assert rule["annotations"]["summary"]
        asked = set(METRIC.findall(rule["expr"]))
        assert asked <= names, rule["alert"]
        assert asked or "up{" in rule["expr"]
        # Every function and aggregation is closed again; Prometheus itself is not here to ask.
        for pair in ("()", "[]", "{}"):
            assert rule["expr"].count(pair[0]) == rule["expr"].count(pair[1])
    assert len(group["rules"]) >= 6


def test_expressions_in_the_text_ask_for_metrics_that_there_are() -> None:
    names = {s.name for f in FAMILIES for s in f.samples}
    assert set(METRIC.findall(PAGE)) - names <= {"pagemill_step_duration_seconds"}


def test_the_commands_on_the_page_are_understood() -> None:
    (command,) = (c for c in blocks("bash") if c.startswith("pagemill worker"))
    options = WorkerOptions.parse(command.split()[2:], {})
    assert (options.metrics_host, options.metrics_port) == ("0.0.0.0", 9400)
