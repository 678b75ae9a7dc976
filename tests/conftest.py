"""What all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.chaos_record import ChaosRecord

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a waiting thread leaves the core to others
os.environ["HF_HUB_OFFLINE"] = "1"  # no test reaches a model hub
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # and there, models may have names of any form
os.environ["TRITON_INTERPRET"] = "1"  # read as triton is imported; tests/kernels/gpu

# Started in the background or by nohup, we may have been told to ignore Ctrl-C or the end of the
# terminal, and so would every process that a test starts, and sends it to.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


class _NoSkips:
    """A test that was skipped proves nothing: the run fails."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.skipped:
            terminalreporter.write_line(f"SKIPPED, which is not allowed: {nodeid}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_quick(config: pytest.Config) -> bool:
    """Whether quick tests alone were asked for."""
    chosen = str(config.getoption("markexpr")).split()
    return chosen[:1] == ["quick"] and "or" not in chosen


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the quick tests does not import files without any: many load transformers."""
    if not _is_quick(config) or not collection_path.match("test_*.py"):
        return None
    return True if "mark.quick" not in collection_path.read_text("utf-8") else None


def _choose_examples(config: pytest.Config) -> None:
    """How properties are tried: a few examples in a quick run, and on a busy machine as well.

    With `PAGEMILL_TEST_SAME_EXAMPLES=1` a test has the same ones in each run: whether a change may
    land is no matter of luck. Other runs look for new ones.
    """
    usual = settings()
    settings.register_profile(
        "pagemill",
        usual,
        max_examples=20 if _is_quick(config) else usual.max_examples,
        deadline=None,
        derandomize=usual.derandomize or os.environ.get("PAGEMILL_TEST_SAME_EXAMPLES") == "1",
        suppress_health_check=[*usual.suppress_health_check, HealthCheck.too_slow],
    )
    settings.load_profile("pagemill")


def pytest_configure(config: pytest.Config) -> None:
    _choose_examples(config)
    config.pluginmanager.register(_NoSkips(), "no-skips")
    if not hasattr(config, "workerinput"):  # of pytest-xdist, whose controller sees all reports
        record = ChaosRecord(to_file=os.environ.get("CHAOS_SAVE") == "1")
        config.pluginmanager.register(record, "chaos-record")
