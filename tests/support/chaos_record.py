"""The figures of a chaos run, written by the run itself."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks.surroundings import save, surroundings

VERSIONS = ("torch", "celery", "kombu", "redis", "sqlalchemy", "psycopg", "pyarrow")


class ChaosRecord:
    """Gathers what the tests marked `chaos` tell by `record_property`, and how they ended.

    Args:
        to_file: keep it in `benchmarks/results/`.
    """

    def __init__(self, *, to_file: bool) -> None:
        self._to_file = to_file
        self._began = time.monotonic()
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "chaos" not in report.keywords:
            return
        name = report.nodeid.partition("[")[0]
        empty = {"runs": 0, "failed": 0, "seconds": 0.0, "figures": []}
        test = self._tests.setdefault(name, empty)
        test["seconds"] = round(test["seconds"] + report.duration, 1)
        test["failed"] += not report.passed
        if report.when == "call":
            test["runs"] += 1
            if report.user_properties:
                test["figures"].append(dict(report.user_properties))

    def pytest_sessionfinish(self) -> None:
        if self._tests:
            save(self.report(), to_file=self._to_file)

    def report(self) -> dict[str, Any]:
        told = [figures for test in self._tests.values() for figures in test["figures"]]
        return {
            "benchmark": "chaos",
            **surroundings(*VERSIONS),
            "seconds": round(time.monotonic() - self._began),
            "kills": sum(
                figures.get("kills_of_workers", 0) + figures.get("kills_of_engines", 0)
                for figures in told
            ),
            "failed": sum(test["failed"] for test in self._tests.values()),
            "tests": self._tests,
        }
