"""Fixtures of a job store, on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.database import Database, upgrade
from jobs.store import Store
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


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database without rows, once of each kind."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "jobs.db")
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    url: str = request.getfixturevalue("migrated_postgres")
    database = Database(url)
    StoreUnderTest(database).delete_all()
    database.close()
    return url


@pytest.fixture
def back(database_url: str) -> Iterator[StoreUnderTest]:
    """A store with a back door."""
    database = Database(database_url)
    yield StoreUnderTest(database)
    database.close()


@pytest.fixture
def store(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    """A store on SQLite, for tests of what is built upon it."""
    with sqlite_store(migrated_sqlite, tmp_path) as store:
        yield store
