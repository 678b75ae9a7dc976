"""The database: connections, transactions, errors in words, and the schema's revision.

SQLite is opened in WAL mode, and every write transaction begins with BEGIN IMMEDIATE: a
transaction that first reads and then asks for the write lock can be refused at once, whatever
the busy timeout. So transactions queue up for the lock, and must be short.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError, StatementError
from sqlalchemy.pool import StaticPool

from jobs.database_errors import UPGRADE_HINT, hint, is_away, is_full, is_undone, refusal_cure
from jobs.database_url import no_url, parse_url
from jobs.errors import DatabaseError, DatabaseUnavailable, DatabaseUnusable
from jobs.extras import how_to_install
from jobs.leaving import interruption_behind
from jobs.patience import Patience, Tell, Told
from jobs.shown_urls import scrubbed, without_password
from jobs.tables import SCHEMA_REVISION

T = TypeVar("T")

# How long SQLite waits for the write lock before it says "locked"; `transact` then asks again.
BUSY_SECONDS = 2.0

# The other end of a connection may be gone without a word; these are libpq's names.
_POSTGRES_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": "pagemill",
}


class Database:
    """A pool of connections to the database of a deployment.

    Threads may share it; a process that was forked off must make its own.

    Args:
        url: SQLAlchemy URL of an SQLite file or a PostgreSQL database.
        on_wait: told now and then while `transact` waits for a database that refuses.

    Raises:
        SettingsError: the URL names something else.
        DatabaseError: the PostgreSQL driver is missing.
    """

    def __init__(self, url: str, on_wait: Tell | None = None) -> None:
        self._given = url
        self._told = Told(on_wait)
        self.url = parse_url(url)
        try:
            self.engine = _engine(self.url)
        except (ArgumentError, ValueError):  # a host of SQLite, a timeout that is no number
            raise no_url(self.shown_url) from None
        pool = type(self.engine.pool)
        pool_log = logging.getLogger(f"{pool.__module__}.{pool.__name__}")
        pool_log.addFilter(_is_no_interruption)

    def acting_as(self, actor: str) -> Self:
        """The same pool of connections, which know who uses them (for `jobs.store.events`)."""
        other = copy.copy(self)
        other.engine = self.engine.execution_options(actor=actor)
        return other

    @classmethod
    def empty(cls, url: str) -> Self:
        """All tables and no rows, in memory, in the place of a database that is not there.

        So every question has its answer, and looking leaves no file behind.
        """
        from jobs.evaluation_tables import metadata  # of all tables

        made = cls(url)
        made.engine = _prepared(
            create_engine(
                "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
            )
        )
        metadata.create_all(made.engine)
        return made

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """A write transaction: committed at the end of the block, rolled back by an exception.

        Raises:
            DatabaseError: the database cannot be reached, or stayed locked, …
        """
        with self._errors_in_words(), _interruptions_first(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and changes nothing.

        Raises:
            DatabaseError: the database cannot be reached, …
        """
        with self._errors_in_words(), _interruptions_first(), self.engine.connect() as connection:
            if self.engine.dialect.name == "sqlite":
                connection = connection.execution_options(sqlite_begin="BEGIN")
            else:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            yield connection

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a write transaction, again if the database asks for another try.

        So it is done after a conflict, and for some seconds if an SQLite file is locked or a
        PostgreSQL is away that may be restarting. `work` may run several times, each time in a
        new transaction, so it must have no other effects. It may even run again after it was
        committed, where the answer was lost together with the connection: then it finds what it
        did itself.

        Raises:
            DatabaseError: as `begin`; or it was refused for too long.
        """
        patience = Patience()
        while True:
            try:
                with _interruptions_first(), self.engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                wait = patience.after(error)
                said = self._in_words(error)
                if wait is None:
                    raise said from error
            self._told.of(said, patience.waited)
            time.sleep(wait)

    def close(self) -> None:
        """Close all idle connections; those in use close when they are given back."""
        self.engine.dispose()

    def is_missing(self) -> bool:
        """Whether it would be an SQLite file that is not there; opening it would create it."""
        on_sqlite = self.engine.dialect.name == "sqlite"
        return on_sqlite and not Path(self.url.database or "").exists()

    def check_revision(self) -> None:
        """Refuse a database whose tables are not those that this version of pagemill knows.

        Raises:
            DatabaseError: the tables are missing, older or newer.
        """
        if self.is_missing():
            raise DatabaseError(f"there is no database at {self.shown_url}: {UPGRADE_HINT}")
        with self.read() as connection:
            if not inspect(connection).has_table("alembic_version"):
                raise DatabaseError(
                    f"the database {self.shown_url} has no tables of pagemill: {UPGRADE_HINT}"
                )
            found = connection.scalar(text("SELECT version_num FROM alembic_version"))
        if found == SCHEMA_REVISION:
            return
        if found is None or found in _known_revisions():
            raise DatabaseError(
                f"the database {self.shown_url} is at revision {found or 'none'}, and this "
                f"pagemill needs {SCHEMA_REVISION}: {UPGRADE_HINT}"
            )
        raise DatabaseError(
            f"the database {self.shown_url} is at revision {found}, which this pagemill does not "
            f"know (it needs {SCHEMA_REVISION}): a newer pagemill upgraded it; install that "
            "version here too"
        )

    @property
    def shown_url(self) -> str:
        """The URL as it was given, without its password and other secrets."""
        return without_password(self._given)

    @contextlib.contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._in_words(error) from error

    def _in_words(self, error: SQLAlchemyError) -> DatabaseError:
        said = str(error.orig if isinstance(error, StatementError) else error)
        said = " ".join(_LIBPQ_ADVICE.sub("", said).split())
        for url in (self._given, self.url.render_as_string(hide_password=False)):
            said = scrubbed(said, url)
        where = f"database {self.shown_url}: {said}"
        if cure := refusal_cure(error):
            return DatabaseUnusable(where, cure)
        may_pass = is_away(error) or is_undone(error) or is_full(error)
        kind = DatabaseUnavailable if may_pass else DatabaseError
        return kind(f"{where}{hint(error)}")


# libpq asks this on a line of its own; ours is what to do.
_LIBPQ_ADVICE = re.compile(r"\n\s*Is the server running [^\n]*\?")


def upgrade(url: str, on_wait: Tell | None = None) -> None:
    """Create the tables, or bring those of an older pagemill up to date.

    Safe to call at any time, and from several processes at once: one does it, the others wait.

    Raises:
        DatabaseError: the database cannot be reached or written, or is newer than this pagemill.
    """
    from alembic import command
    from alembic.util import CommandError

    def migrate(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            # Any fixed number; it is given back when the transaction ends.
            connection.execute(text("SELECT pg_advisory_xact_lock(7243646)"))
        config = _alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    database = Database(url, on_wait)
    try:
        if database.url.get_backend_name() == "sqlite":
            _make_folder(database.url)
        database.transact(migrate)
    except CommandError as error:
        raise DatabaseError(
            f"the database {database.shown_url} cannot be upgraded: {error}; if a newer "
            "pagemill made it, install that version here too"
        ) from error
    finally:
        database.close()


@contextlib.contextmanager
def _interruptions_first() -> Iterator[None]:
    """Let what a signal raised in the block come out of it, though an error took its place.

    It may have come in the midst of a statement. Then the driver refuses to end the transaction,
    and whoever takes that error for one of the database, and tries again, would never leave.
    """
    handled = sys.exception()  # not of the block, as of one that cleans up after an interruption
    try:
        yield
    except Exception as error:
        if interruption := interruption_behind(error, handled):
            raise interruption from None
        raise


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _prepared(
            create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_SECONDS})
        )
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            # Tracebacks quote statements; what is written there (prompts, URLs) is not theirs.
            hide_parameters=True,
            # What our statements are written for, whatever the default of the database is: they
            # lock the rows that they decide upon. Where the default is stricter, busy workers
            # would be refused again and again.
            isolation_level="READ COMMITTED",
            connect_args={
                **{k: v for k, v in _POSTGRES_DEFAULTS.items() if k not in url.query},
                # PgBouncer gives each transaction another connection, without our statements.
                "prepare_threshold": None,
            },
        )
    except ModuleNotFoundError as error:
        raise DatabaseUnusable(
            f"the PostgreSQL driver is not installed ({error})",
            f"run {how_to_install('postgres')}",
        ) from error


def _prepared(engine: Engine) -> Engine:
    """With what every connection to SQLite needs."""
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    event.listen(engine, "invalidate", _end_sqlite)
    return engine


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """The pool logs what ends the closing of a connection, with a traceback, and raises it, too."""
    raised = record.exc_info and record.exc_info[1]
    return not isinstance(raised, (KeyboardInterrupt, SystemExit))


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 shall begin no transaction of its own
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql(options.get("sqlite_begin", "BEGIN IMMEDIATE"))


def _end_sqlite(connection: sqlite3.Connection, _record: Any, _error: Any) -> None:
    """Of a connection that was interrupted: after it is closed, it would keep its locks for as long
    as there are cursors, and a traceback in a notebook keeps those until the next one."""
    connection.rollback()


def _make_folder(url: URL) -> None:
    folder = Path(url.database or "").absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"the folder {folder} of the database: {error.strerror}") from error


def _alembic_config() -> Any:
    from alembic.config import Config

    config = Config()
    # The folder beside our package, in a checkout as in an installed wheel. Not found by name:
    # the folder that the user stands in may well have a `migrations/` of its own.
    folder = Path(__file__).resolve().parent.parent / "migrations"
    # Alembic's configuration expands percent signs.
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _known_revisions() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_alembic_config())
    return frozenset(script.revision for script in scripts.walk_revisions())
