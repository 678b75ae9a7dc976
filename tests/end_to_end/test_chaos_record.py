"""What `make chaos` writes down."""

from __future__ import annotations

import json

import pytest

from benchmarks import surroundings
from tests.support.chaos_record import ChaosRecord

pytestmark = pytest.mark.quick


def report(test, when, outcome="passed", keywords=("chaos",), **told):
    return pytest.TestReport(
        f"tests/test_it.py::{test}", ("tests/test_it.py", 1, test), dict.fromkeys(keywords, 1),
        outcome, None, when, user_properties=list(told.items()), duration=1.5,
    )  # fmt: skip


def test_kills_failures_and_what_tests_tell_are_in_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(surroundings, "RESULTS", tmp_path)
    record = ChaosRecord(to_file=True)
    for place, kills in (("sqlite", 7), ("postgresql", 5)):
        test = f"test_kills[{place}]"
        record.pytest_runtest_logreport(report(test, "setup"))
        told = {"place": place, "kills_of_workers": kills, "kills_of_engines": 1}
        record.pytest_runtest_logreport(report(test, "call", **told))
    record.pytest_runtest_logreport(report("test_fuzz", "call", "failed", files=10_000))
    record.pytest_runtest_logreport(report("test_quick", "call", keywords=("quick",)))
    record.pytest_sessionfinish()

    (path,) = tmp_path.glob("chaos-*.json")
    written = json.loads(path.read_text())
    assert written["kills"] == 14
    assert written["failed"] == 1
    assert {"date", "commit", "versions", "seconds"} <= written.keys()
    kills, fuzz = written["tests"].values()
    assert (kills["runs"], kills["failed"], kills["seconds"]) == (2, 0, 6.0)
    assert [figures["place"] for figures in kills["figures"]] == ["sqlite", "postgresql"]
    assert fuzz["figures"] == [{"files": 10_000}]
    assert len(written["tests"]) == 2
    assert json.loads(capsys.readouterr().out) == written


def test_a_run_without_chaos_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(surroundings, "RESULTS", tmp_path)
    record = ChaosRecord(to_file=True)
    record.pytest_runtest_logreport(report("test_quick", "call", keywords=("quick",)))
    record.pytest_sessionfinish()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
