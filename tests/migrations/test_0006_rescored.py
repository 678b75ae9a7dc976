"""The step to revision 0006, there and back."""

from __future__ import annotations

from alembic import command

from jobs.database import Database
from tests.support.migrating import config, schema


def test_there_and_back_again(database: Database) -> None:
    with database.begin() as connection:
        command.upgrade(config(connection), "0005")
        before = schema(connection)
        command.upgrade(config(connection), "0006")
        assert schema(connection) != before
        command.downgrade(config(connection), "0005")
        assert schema(connection) == before
