"""The database: connections, transactions, errors in words, and the schema's revision.

SQLite is opened in WAL mode, and every write transaction begins with BEGIN IMMEDIATE: a
transaction that first reads and then asks for the write lock can be refused at once, whatever
the busy timeout. So transactions queue up for the lock, and must be short.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from jobs.errors import DatabaseError
from jobs.tables import SCHEMA_REVISION

T = TypeVar("T")

BUSY_SECONDS = 10.0  # how long SQLite waits for the write lock before it says "locked"
ATTEMPTS = 4

UPGRADE_HINT = "run `pagemill db upgrade`"

_SQLITE_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SQLITE_UNWRITABLE = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
)
# PostgreSQL undid the transaction and asks for another try: serialization failure, deadlock.
_TRY_AGAIN = frozenset({"40001", "40P01"})
_UNDEFINED_TABLE = "42P01"


class Database:
    """A pool of connections to the database of a deployment.

    Threads may share it; a process that was forked off must make its own.

    Args:
        url: SQLAlchemy URL of an SQLite file or a PostgreSQL database.

    Raises:
        DatabaseError: the URL names something else, or the PostgreSQL driver is missing.
    """

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.engine = _engine(self.url)

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """A write transaction: committed at the end of the block, rolled back by an exception.

        Raises:
            DatabaseError: the database cannot be reached, or stayed locked, …
        """
        with self._errors_in_words(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and changes nothing.

        Raises:
            DatabaseError: the database cannot be reached, …
        """
        with self._errors_in_words(), self.engine.connect() as connection:
            if self.engine.dialect.name == "sqlite":
                connection = connection.execution_options(sqlite_begin="BEGIN")
            else:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            yield connection

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a write transaction, again if the database asks for another try.

        `work` may run several times, each time in a new transaction, so it must have no other
        effects.

        Raises:
            DatabaseError: as `begin`; or every attempt was refused.
        """
        for attempt in range(1, ATTEMPTS):
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                if not _is_transient(error):
                    raise self._in_words(error) from error
            time.sleep(random.uniform(0, 0.02 * 2**attempt))
        with self.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """Close all idle connections; those in use close when they are given back."""
        self.engine.dispose()

    def check_revision(self) -> None:
        """Refuse a database whose tables are not those that this version of pagemill knows.

        Raises:
            DatabaseError: the tables are missing, older or newer.
        """
        on_sqlite = self.engine.dialect.name == "sqlite"
        # Opening a file that is missing would create it.
        if on_sqlite and not Path(self.url.database or "").exists():
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
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    @contextlib.contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._in_words(error) from error

    def _in_words(self, error: SQLAlchemyError) -> DatabaseError:
        said = str(error.orig if isinstance(error, StatementError) else error).strip()
        return DatabaseError(f"database {self.shown_url}: {said}{_hint(error)}")


def upgrade(url: str) -> None:
    """Create the tables, or bring those of an older pagemill up to date.

    Safe to call at any time, and from several processes at once: one does it, the others wait.

    Raises:
        DatabaseError: the database cannot be reached or written, or is newer than this pagemill.
    """
    from alembic import command
    from alembic.util import CommandError

    database = Database(url)
    try:
        if database.url.get_backend_name() == "sqlite":
            _make_folder(database.url)
        with database.begin() as connection:
            if connection.dialect.name == "postgresql":
                # Any fixed number; it is given back when the transaction ends.
                connection.execute(text("SELECT pg_advisory_xact_lock(7243646)"))
            config = _alembic_config()
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise DatabaseError(
                    f"the database {database.shown_url} cannot be upgraded: {error}; if a newer "
                    "pagemill made it, install that version here too"
                ) from error
    finally:
        database.close()


def parse_url(url: str) -> URL:
    """A database URL that we can work with.

    Raises:
        DatabaseError: it is no URL, or names neither an SQLite file nor PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise DatabaseError(
            f"{url!r} is not a database URL; write sqlite:////absolute/path.db or "
            "postgresql://user:password@host/database (PAGEMILL_DATABASE_URL)"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise DatabaseError(
                f"{url!r} is an SQLite database in memory, which other processes cannot see; "
                "name a file: sqlite:////absolute/path.db (PAGEMILL_DATABASE_URL)"
            )
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise DatabaseError(
        f"{parsed.render_as_string()!r} names the database {backend!r}; pagemill works with "
        "sqlite and postgresql (PAGEMILL_DATABASE_URL)"
    )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"the PostgreSQL driver is not installed ({error}): "
            "run `pip install 'pagemill[postgres]'`"
        ) from error


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 shall begin no transaction of its own
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql(options.get("sqlite_begin", "BEGIN IMMEDIATE"))


def _make_folder(url: URL) -> None:
    folder = Path(url.database or "").absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"the folder {folder} of the database: {error.strerror}") from error


def _is_transient(error: SQLAlchemyError) -> bool:
    """Whether the transaction was surely undone, and may succeed if it is tried again."""
    original = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        return _sqlite_code(original) in _SQLITE_LOCKED
    return getattr(original, "sqlstate", None) in _TRY_AGAIN


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code; the extended one says more in its higher bits."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _hint(error: SQLAlchemyError) -> str:
    if isinstance(error, PoolTimeout):
        return "; too many threads of this process wait for the database"
    if not isinstance(error, DBAPIError):
        return ""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        if _sqlite_code(original) in _SQLITE_LOCKED:
            return "; another program holds a transaction open in it: close that program"
        if _sqlite_code(original) in _SQLITE_UNWRITABLE:
            return "; check that its folder exists and may be written, SQLite writes beside it too"
        if "no such table" in str(original):
            return f": {UPGRADE_HINT}"
        return ""
    state = getattr(original, "sqlstate", None)
    if state == _UNDEFINED_TABLE:
        return f": {UPGRADE_HINT}"
    if error.connection_invalidated or state is None or state.startswith(("08", "28", "3D", "57P")):
        return "; check that the server runs and PAGEMILL_DATABASE_URL is right"
    return ""


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
