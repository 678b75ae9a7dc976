"""What the tests of an installed pagemill share: the wheel, and which shells are there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.once import made_once
from tests.support.wheels import build_wheel, copy_of_the_source

SHELLS = ("bash", "zsh", "fish")

_missing = [shell for shell in SHELLS if shutil.which(shell) is None]


def _shell_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("shell") if callspec else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of shells that this machine lacks; in CI they fail instead.

    A skipped test fails the run, and nobody should need three shells to run ours.
    """
    if os.environ.get("CI") == "true":
        return
    out = [item for item in items if _shell_of(item) in _missing]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for shell in _missing:
        terminalreporter.write_line(
            f"{shell} is not installed: what it makes of `pagemill shell-init` was not tested",
            yellow=True,
        )


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the repository."""
    folder = tmp_path_factory.mktemp("source")
    copy_of_the_source(folder)
    return folder


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = made_once(tmp_path_factory, "dist", lambda into: build_wheel(source, into))
    (built,) = folder.glob("*.whl")
    return built
