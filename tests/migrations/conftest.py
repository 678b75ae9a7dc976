"""Databases without any tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.database import Database
from tests.support.postgres import create_database, drop_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database, once of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/migrated.db"
        return
    url = create_database()
    yield url
    drop_database(url)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()
