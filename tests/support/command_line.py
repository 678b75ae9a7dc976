"""The command line, run in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.cli.app import app
from jobs.database import Database
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store


class CommandLine:
    """`pagemill` on a deployment of its own below `home`."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        for name in ("DATABASE_URL", "STORAGE_URL", "BROKER_URL", "DEBUG"):
            patch.delenv(f"PAGEMILL_{name}", raising=False)
        patch.setenv("PAGEMILL_HOME", str(home))
        self.settings = Settings.from_env()
        self.storage = Storage(self.settings.storage_url)

    def __call__(
        self, *arguments: str, expect: int = 0, stdin: str | None = None
    ) -> tuple[str, str]:
        """Run a command; returns what it wrote to stdout and stderr."""
        done = CliRunner().invoke(app, list(arguments), input=stdin)
        assert done.exit_code == expect, (
            f"pagemill {' '.join(arguments)} ended with {done.exit_code}\n"
            f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
        )
        return done.stdout, done.stderr

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
