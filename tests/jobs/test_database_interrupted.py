"""A signal in the midst of a statement: what its handler raises comes out, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from jobs.database import Database
from jobs.errors import DatabaseError
from jobs.leaving import ToldToLeave
from tests.support.child import child
from tests.support.deployment import Deployment, wait_for
from tests.support.job_store import StoreUnderTest

# Statements of a second or so, during which a signal comes.
LONG = {
    "postgresql": "SELECT pg_sleep(2)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) "
    "SELECT max(i) FROM n",
}


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@contextmanager
def interrupted_soon(error: type[BaseException]) -> Iterator[None]:
    def handler(number: int, frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_begin(database: Database, statement: str) -> None:
    with database.begin() as connection:
        connection.execute(text(statement))


def in_read(database: Database, statement: str) -> None:
    with database.read() as connection:
        connection.execute(text(statement))


def in_transact(database: Database, statement: str) -> None:
    database.transact(lambda connection: connection.execute(text(statement)))


@pytest.mark.parametrize("error", [SystemExit, ToldToLeave, KeyboardInterrupt])
@pytest.mark.parametrize("run", [in_begin, in_read, in_transact])
def test_it_comes_out(
    database: Database, run: Callable[[Database, str], None], error: type[BaseException]
) -> None:
    run(database, "SELECT 1")  # so that the signal does not come while it connects
    with pytest.raises(error), interrupted_soon(error):
        run(database, LONG[database.engine.dialect.name])
    run(database, "SELECT 1")
    pool: Any = database.engine.pool
    assert pool.checkedout() == 0


def test_what_was_written_before_is_undone(database: Database, back: StoreUnderTest) -> None:
    job = back.add()

    def write(connection: Connection) -> None:
        connection.execute(text("UPDATE jobs SET name = 'written'"))
        connection.execute(text(LONG[connection.dialect.name]))

    with pytest.raises(SystemExit), interrupted_soon(SystemExit):
        database.transact(write)
    assert back.store.job(job.id).name == job.name


class LeavesTrouble:
    """A connection that was interrupted, and cannot be put in order."""

    def __call__(self, connection: Connection) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OperationalError("ROLLBACK", {}, Exception("another statement is in progress"))


def test_an_error_does_not_take_its_place(database: Database) -> None:
    with pytest.raises(KeyboardInterrupt):
        database.transact(LeavesTrouble())
    with pytest.raises(KeyboardInterrupt), database.begin() as connection:
        LeavesTrouble()(connection)
    with pytest.raises(KeyboardInterrupt), database.read() as connection:
        LeavesTrouble()(connection)


def test_who_cleans_up_after_one_hears_of_errors(database: Database) -> None:
    def broken(connection: Connection) -> None:
        connection.execute(text("SELECT x FROM nowhere"))

    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(DatabaseError, match="nowhere"):
            database.transact(broken)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_one_while_a_connection_is_closed_is_not_logged(
    database: Database,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SQLAlchemy would show a traceback of it."""

    def close(connection: Any) -> None:
        connection.close()
        raise error

    in_begin(database, "SELECT 1")
    with monkeypatch.context() as patch:
        patch.setattr(database.engine.dialect, "do_close", close)
        with pytest.raises(error):
            database.close()
    assert not caplog.records


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
)
def test_a_command_ends_as_one_that_was_interrupted(
    postgresql_back: StoreUnderTest, tmp_path: Path, number: int, status: int
) -> None:
    """And says nothing of the database, which is well."""
    database = postgresql_back.database
    deployment = Deployment(tmp_path)
    deployment.env["PAGEMILL_DATABASE_URL"] = database.url.render_as_string(hide_password=False)
    with database.begin() as connection:
        connection.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
        with child(
            [sys.executable, "-P", "-m", "jobs", "list"],
            env={**os.environ, **deployment.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as command:  # fmt: skip
            wait_for("the question", lambda: waits_for_lock(postgresql_back), timeout=60)
            command.send_signal(number)
            out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (status, b"")
    assert b"database" not in err


def waits_for_lock(back: StoreUnderTest) -> bool:
    with back.database.read() as connection:
        waiting = connection.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock' AND wait_event = 'relation'"
            )
        )
    return bool(waiting)
