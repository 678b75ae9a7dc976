"""Fixtures of a job store, on SQLite and on PostgreSQL, and of the command line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from jobs.database import Database, upgrade
from jobs.store import Store
from tests.support.command_line import CommandLine
from tests.support.job_store import StoreUnderTest
from tests.support.played_job import sqlite_store
from tests.support.postgres import create_database, drop_database


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with our tables and no rows, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres() -> Iterator[str]:
    """A PostgreSQL database with our tables; whoever uses it deletes the rows first."""
    url = create_database()
    upgrade(url)
    yield url
    drop_database(url)


@pytest.fixture(scope="session")
def sqlite_back(tmp_path_factory: pytest.TempPathFactory) -> StoreUnderTest:
    """On a file that tests replace. To compile statements anew takes longer than to run them."""
    return StoreUnderTest(Database(f"sqlite:///{tmp_path_factory.mktemp('shared') / 'jobs.db'}"))


@pytest.fixture(scope="session")
def postgresql_back(migrated_postgres: str) -> Iterator[StoreUnderTest]:
    database = Database(migrated_postgres)
    yield StoreUnderTest(database)
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows, once of each kind."""
    back: StoreUnderTest = request.getfixturevalue(f"{request.param}_back")
    if request.param == "sqlite":
        path = Path(back.database.url.database or "")
        for leftover in path.parent.glob("jobs.db*"):
            leftover.unlink()
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
    else:
        back.delete_all()
    return back.database.url.render_as_string(hide_password=False)


@pytest.fixture
def back(request: pytest.FixtureRequest, database_url: str) -> Iterator[StoreUnderTest]:
    """A store with a back door."""
    kind = make_url(database_url).get_backend_name()
    back: StoreUnderTest = request.getfixturevalue(f"{kind}_back")
    yield back
    back.database.close()


@pytest.fixture
def store(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    """A store on SQLite, for tests of what is built upon it."""
    with sqlite_store(migrated_sqlite, tmp_path) as store:
        yield store


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    """`pagemill` in this process, on a database of its own that has our tables and no rows."""
    return CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)
