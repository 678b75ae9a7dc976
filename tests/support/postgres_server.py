"""A PostgreSQL server of a test's own, which it may crash, restart and leave without room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import psutil

from tests.support.postgres import administer, start_server

ROLE = "pagemill"


class PostgresServer:
    """A server with one database, which belongs to a role that is no superuser.

    Transactions are serializable by default there, which is stricter than ours need.

    Attributes:
        url: of the database, for the role.
    """

    def __init__(self) -> None:
        self._folder, self._server, self._admin = start_server()
        self._administer(f"CREATE ROLE {ROLE} LOGIN", f"CREATE DATABASE {ROLE} OWNER {ROLE}")
        self._administer(
            f"ALTER DATABASE {ROLE} SET default_transaction_isolation = 'serializable'"
        )
        ours = self._admin.set(username=ROLE, database=ROLE)
        self.url = ours.render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._control("stop", "-m", "immediate")
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)

    def restart(self) -> None:
        """As for an upgrade: who is in is sent away in order."""
        self._control("restart", "-m", "fast")

    def crash(self) -> None:
        """All of its processes are killed; then it is started again, and recovers."""
        self._control("restart", "-m", "immediate")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All of its processes stand still; their connections stay."""
        postmaster = psutil.Process(int((self._folder / "postmaster.pid").read_text().split()[0]))
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def cut_connections(self) -> None:
        self._administer(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{ROLE}'"
        )

    @contextmanager
    def nobody_let_in(self) -> Iterator[None]:
        """The database is away: who is in is cut off, and nobody gets in."""
        self._administer(f"ALTER DATABASE {ROLE} ALLOW_CONNECTIONS false")
        self.cut_connections()
        try:
            yield
        finally:
            self._administer(f"ALTER DATABASE {ROLE} ALLOW_CONNECTIONS true")

    @contextmanager
    def one_connection_at_a_time(self) -> Iterator[None]:
        """Everybody but one hears that there are too many connections."""
        self._administer(f"ALTER ROLE {ROLE} CONNECTION LIMIT 1")
        self.cut_connections()
        try:
            yield
        finally:
            self._administer(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")

    def _control(self, *command: str) -> None:
        from pgserver._commands import pg_ctl

        options = ["-w", "-l", str(self._folder / "log"), *command]
        pg_ctl(options, pgdata=self._folder, user=self._server.system_user, timeout=60)

    def _administer(self, *statements: str) -> None:
        administer(self._admin, *statements)
