"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.chaos_record import ChaosRecord

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a waiting thread leaves the core to others
os.environ["HF_HUB_OFFLINE"] = "1"  # no test reaches a model hub

# Started in the background, we may have been told to ignore Ctrl-C, and so would every process
# that a test starts, and sends it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_NoSkips(), "no-skips")
    if not hasattr(config, "workerinput"):  # of pytest-xdist, whose controller sees all reports
        record = ChaosRecord(to_file=os.environ.get("CHAOS_SAVE") == "1")
        config.pluginmanager.register(record, "chaos-record")
