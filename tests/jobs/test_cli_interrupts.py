"""Ctrl-C while a command is still loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

LIST, BEAT = ["jobs", "list"], ["jobs", "beat"]
WORKER = ["jobs", "worker", "--model", "m"]
OF_WORKER = ["worker", "--model", "m"]  # what `pagemill worker` becomes


def interrupted(command: list[str], module: str, **options: object) -> tuple[int, str]:
    """Press Ctrl-C when that module has been imported; returns the exit code and stderr."""
    with subprocess.Popen(
        [sys.executable, "-P", "-X", "importtime", "-m", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options,  # type: ignore[call-overload]
    ) as process:  # fmt: skip
        said = []
        for line in process.stderr:
            if line.startswith("import time:"):
                if line.rpartition("|")[2].strip() == module:
                    process.send_signal(signal.SIGINT)
            else:
                said.append(line)
        return process.wait(60), "".join(said)


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (command, module)
        for command, modules in (
            (LIST, ("typer.models", "jobs.cli.group", "jobs.cli.beat", "sqlalchemy.util")),
            (BEAT, ("typer.models", "jobs.cli.group", "sqlalchemy.util", "sqlalchemy.sql")),
            (WORKER, ("typer.models", "jobs.cli.group", "sqlalchemy.util")),
            (OF_WORKER, ("engine.logs", "sqlalchemy.util", "jobs.store")),
        )
        for module in modules
    ],
)  # fmt: skip
def test_ctrl_c_shows_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], module: str
) -> None:
    CommandLine(tmp_path / "home", monkeypatch)  # sets the environment

    code, said = interrupted(command, module)

    assert (code, said) == (130, "")


def test_where_ctrl_c_is_ignored_it_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a job in the background of a script."""
    CommandLine(tmp_path / "home", monkeypatch)

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    code, said = interrupted(["jobs", "--version"], "jobs.cli.group", preexec_fn=ignore)

    assert (code, said) == (0, "")
