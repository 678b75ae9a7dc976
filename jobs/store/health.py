"""Whether a database can be worked with, for those who look for what is wrong."""

from __future__ import annotations

from sqlalchemy import Connection, false, update

from jobs.tables import jobs

_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def server(connection: Connection) -> str:
    """Which program it is, such as `PostgreSQL 16.2`."""
    dialect = connection.dialect
    version = ".".join(map(str, dialect.server_version_info or ()))
    return f"{_NAMES[dialect.name]} {version}"


def try_to_write(connection: Connection) -> None:
    """Do what a database that is read-only, or not ours to write, refuses; changes nothing."""
    connection.execute(update(jobs).where(false()).values(priority=jobs.c.priority))
