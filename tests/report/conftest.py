"""Fixtures of the report: a deployment with made evaluations, and a browser to look at pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.database import Database, upgrade
from jobs.storage import Storage
from jobs.store import Store
from tests.support.chromium import Chromium, chromium, installed
from tests.support.command_line import CommandLine
from tests.support.made_evaluations import MadeEvaluations

_PROGRAM = installed()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a browser where there is none; in CI it fails instead.

    A skipped test fails the run, and nobody should need a browser to run ours.
    """
    if os.environ.get("CI") == "true" or _PROGRAM is not None:
        return
    out = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _PROGRAM is None:
        terminalreporter.write_line(
            "chromium is not installed: how a report looks was not tested", yellow=True
        )


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    assert _PROGRAM is not None, "chromium is not installed"
    with chromium(_PROGRAM, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with our tables and no rows, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)


@pytest.fixture
def database(cli: CommandLine) -> Iterator[Database]:
    database = Database(cli.settings.database_url)
    yield database
    database.close()


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


@pytest.fixture
def storage(cli: CommandLine) -> Storage:
    cli.storage.root.mkdir(parents=True, exist_ok=True)
    return cli.storage


@pytest.fixture
def made(database: Database, storage: Storage) -> MadeEvaluations:
    return MadeEvaluations(database, storage)
