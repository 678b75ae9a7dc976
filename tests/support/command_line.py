"""The command line, run in this process."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from unittest import mock

import pytest
import typer.testing
from sqlalchemy import make_url
from typer.main import get_command
from typer.testing import CliRunner

from jobs import finalize
from jobs.cli.app import app
from jobs.database import Database
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob

GOOD = [{"prompt": "one", "topic": "a"}, {"prompt": "two"}, {"prompt": "three"}]

# To build all commands takes longer than to run most of them.
_built_once = functools.cache(get_command)


def run_here(*arguments: str, expect: int = 0, stdin: str | None = None) -> tuple[str, str]:
    """Run a command in the environment of this process; what it wrote to stdout and stderr."""
    with mock.patch.object(typer.testing, "_get_command", _built_once):
        done = CliRunner().invoke(app, list(arguments), input=stdin)
    assert done.exit_code == expect, (
        f"pagemill {' '.join(arguments)} ended with {done.exit_code}\n"
        f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    )
    return done.stdout, done.stderr


class CommandLine:
    """`pagemill` on a deployment of its own below `home`."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        for name in ("DATABASE_URL", "STORAGE_URL", "BROKER_URL", "DEBUG"):
            patch.delenv(f"PAGEMILL_{name}", raising=False)
        patch.setenv("PAGEMILL_HOME", str(home))
        self.settings = Settings.from_env()
        self.storage = Storage(self.settings.storage_url)

    def with_tables(self, migrated: Path) -> Self:
        """Begin with a copy of that SQLite database, in the place of the default one."""
        self.home.mkdir()
        database = make_url(self.settings.database_url).database
        assert database is not None
        shutil.copy(migrated, database)
        return self

    def __call__(
        self, *arguments: str, expect: int = 0, stdin: str | None = None
    ) -> tuple[str, str]:
        """Run a command; returns what it wrote to stdout and stderr."""
        return run_here(*arguments, expect=expect, stdin=stdin)

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json")[0])

    def submit(self, *rows: object, options: tuple[str, ...] = ()) -> str:
        """Submit rows as JSONL; a row that is text is a line as it stands."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path = self.home / "rows.jsonl"
        self.home.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        return self("submit", str(path), "--model", "the-model", *options)[0].strip()

    @contextmanager
    def store(self) -> Iterator[Store]:
        database = Database(self.settings.database_url)
        try:
            yield Store(database)
        finally:
            database.close()


def on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """Lines that a command writes to a terminal of so many columns."""
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "jobs", *arguments],
            stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, check=True,
            # A dumb terminal is taken for one of 80 columns, whatever it says.
            env=env | {"NO_COLOR": "1", "TERM": "xterm"},
        )  # fmt: skip
        assert done.stderr == b""
        text = os.read(ours, 100_000).decode()
    finally:
        os.close(theirs)
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def answer_all(cli: CommandLine, job_id: str, failing: set[int] | None = None) -> None:
    """Play the worker until the job has ended."""
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id, failing or set()).finish_all()
        finalize.drive(store, cli.storage, "worker")
