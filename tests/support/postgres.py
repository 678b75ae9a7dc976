"""A real PostgreSQL server for the tests, started when the first test asks for it."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, make_url

GIVEN = "PAGEMILL_TEST_POSTGRES_URL"


def create_database() -> str:
    """The URL of a new, empty database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    administer(_server(), f"CREATE DATABASE {name}")
    return _server().set(database=name).render_as_string(hide_password=False)


def drop_database(url: str) -> None:
    """Drop a database, whoever is still connected to it."""
    administer(_server(), f"DROP DATABASE {make_url(url).database} WITH (FORCE)")


def drop_role(name: str) -> None:
    """Drop a role, if there is one of that name; it must own nothing any more."""
    administer(_server(), f"DROP ROLE IF EXISTS {name}")


@contextmanager
def owned_with_a_password(url: str, name: str, password: str) -> Iterator[str]:
    """The URL of a database for a new role that owns it, and is asked for its password."""
    database = make_url(url).database
    quoted = password.replace("'", "''")
    administer(
        _server(),
        f"CREATE ROLE {name} LOGIN PASSWORD '{quoted}'",
        f"ALTER DATABASE {database} OWNER TO {name}",
    )
    try:
        _ask_for_a_password(name)
        yield make_url(url).set(username=name, password=password).render_as_string(False)
    finally:
        administer(_server(), f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
        administer(make_url(url).set(drivername="postgresql+psycopg"), f"DROP OWNED BY {name}")
        drop_role(name)


def _ask_for_a_password(name: str) -> None:
    """A server of our own lets everybody in else."""
    if GIVEN in os.environ:
        return
    engine = create_engine(_server())
    try:
        with engine.connect() as connection:
            rules = Path(connection.exec_driver_sql("SHOW hba_file").scalar_one())
    finally:
        engine.dispose()
    rule = f"local all {name} scram-sha-256\n"
    rules.write_text(rule + rules.read_text())
    administer(_server(), "SELECT pg_reload_conf()")


def client_folder() -> Path:
    """Where `psql` is: the one that came with our server, or that of the machine."""
    if GIVEN not in os.environ:
        _server()  # imports pgserver without its warning
        import pgserver

        return Path(pgserver.__file__).parent / "pginstall" / "bin"
    found = shutil.which("psql")
    assert found is not None, f"with {GIVEN}, the tests need psql on the PATH"
    return Path(found).parent


def cut_connections(url: str) -> None:
    """Close all connections to a database, as a restart of the server would."""
    name = make_url(url).database
    administer(
        _server(),
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
    )


@contextmanager
def nobody_let_in(url: str) -> Iterator[None]:
    """A database that is away: who is in is cut off, and nobody gets in."""
    name = make_url(url).database
    administer(_server(), f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    cut_connections(url)
    try:
        yield
    finally:
        administer(_server(), f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def connections(url: str) -> int:
    """How many there are to a database."""
    engine = create_engine(_server())
    try:
        with engine.connect() as connection:
            return connection.exec_driver_sql(
                f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{make_url(url).database}'"
            ).scalar_one()
    finally:
        engine.dispose()


@functools.cache
def _server() -> URL:
    """The server of PAGEMILL_TEST_POSTGRES_URL, else one of our own, stopped at exit."""
    if given := os.environ.get(GIVEN):
        return make_url(given).set(drivername="postgresql+psycopg")
    return start_server()[2]


def start_server() -> tuple[Path, Any, URL]:
    """The folder of a new server, pgserver's handle on it, and the URL of its superuser."""
    with warnings.catch_warnings():
        # A container has no runtime folder of the user; pgserver then takes one under /tmp.
        warnings.simplefilter("ignore")
        import pgserver

        # Not pytest's folder: the path of a socket may have 107 characters, and a server that
        # root starts runs as another user, who has to get there.
        folder = Path(tempfile.mkdtemp(prefix="pg-"))
        folder.chmod(0o755)
        server = pgserver.get_server(folder, cleanup_mode="delete")
    url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
    # Nobody needs these data after a power cut.
    administer(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    return folder, server, url


def administer(url: URL, *statements: str) -> None:
    """Run statements, each by itself."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()
