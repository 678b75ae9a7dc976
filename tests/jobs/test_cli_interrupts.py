"""Ctrl-C while a command is loaded, and signals whose exception would be lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from jobs.cli.group import Commands
from jobs.errors import StorageError
from tests.support.child import child
from tests.support.command_line import CommandLine

LIST, BEAT = ["jobs", "list"], ["jobs", "beat"]
WORKER = ["jobs", "worker", "--model", "m"]
OF_WORKER = ["worker", "--model", "m"]  # what `pagemill worker` becomes


def interrupted(command: list[str], module: str, **options: object) -> tuple[int, str]:
    """Press Ctrl-C when that module has been imported; returns the exit code and stderr."""
    with child(
        [sys.executable, "-P", "-X", "importtime", "-m", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options,
    ) as process:  # fmt: skip
        assert process.stderr is not None
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


LOST_IN_A_FINALIZER = """
class Lost:
    def __del__(self):
        os.kill(os.getpid(), number)
        for _ in range(1000):  # the handler is called between two of these
            pass

def app(**options):
    Lost()
    time.sleep(60)

jobs.cli.app.app = app
"""

AFTER_THE_COMMAND = """
@atexit.register
def ending():
    os.kill(os.getpid(), number)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_command_wherever_it_comes(number: int, status: int) -> None:
    """What it raises is lost where nobody can catch it, and Python shows a traceback of it."""
    assert ended(LOST_IN_A_FINALIZER, number) == (status, "")
    assert ended(AFTER_THE_COMMAND, number) == (-number, "")


def ended(code: str, number: int) -> tuple[int, str]:
    code = (
        "import atexit, os, sys, time\n"
        "import jobs.cli.app\n"
        f"number = {int(number)}\n{code}\n"
        "sys.argv[1:] = ['--version']\n"
        "from jobs.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, timeout=50,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_an_error_in_putting_things_in_order_is_not_told_in_its_place() -> None:
    app = typer.Typer(cls=Commands)

    @app.command()
    def interrupted() -> None:
        try:
            raise SystemExit(143)
        finally:
            raise StorageError("a file cannot be removed")

    @app.command()
    def other() -> None: ...

    done = CliRunner().invoke(app, ["interrupted"])
    assert (done.exit_code, done.output) == (143, "")


def test_where_ctrl_c_is_ignored_it_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a job in the background of a script."""
    CommandLine(tmp_path / "home", monkeypatch)

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    code, said = interrupted(["jobs", "--version"], "jobs.cli.group", preexec_fn=ignore)

    assert (code, said) == (0, "")
