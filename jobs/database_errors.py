"""What an error of the database means: to be tried again, or which cure to name."""

from __future__ import annotations

import re
import shlex
import sqlite3

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

UPGRADE_HINT = "run `pagemill db upgrade`"

_SQLITE_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SQLITE_UNWRITABLE = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
)
# PostgreSQL undid the transaction and asks for another try: serialization failure, deadlock.
_TRY_AGAIN = frozenset({"40001", "40P01"})
_UNDEFINED_TABLE = "42P01"
# It closed the connection, or takes none yet: shut down, crashed, starting, connection exception.
_AWAY = ("57P01", "57P02", "57P03", "08")

# How it refuses a connection that is one too many; libpq hands on no code of that.
_NO_ROOM = ("too many connections", "too many clients", "connection slots are reserved")
# Nor of these, where waiting is of no use. (Whoever asks LDAP may be answered a moment later.)
_NO_DATABASE = re.compile(r'database "(.+?)" does not exist')
_NOT_LET_IN = re.compile(
    r'role ".+" does not exist|role ".+" is not permitted to log in|no pg_hba\.conf entry'
    "|password authentication failed|no password supplied"
)
_REFUSED_STATES = ("28", "3D")  # invalid authorization, no such database


def is_undone(error: SQLAlchemyError) -> bool:
    """Whether the transaction was surely undone, and may succeed if it is tried again."""
    original = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        return _sqlite_code(original) in _SQLITE_LOCKED
    return getattr(original, "sqlstate", None) in _TRY_AGAIN


def is_full(error: SQLAlchemyError) -> bool:
    """Whether the disk of an SQLite database has no room."""
    original = error.orig if isinstance(error, DBAPIError) else None
    return isinstance(original, sqlite3.Error) and _sqlite_code(original) == sqlite3.SQLITE_FULL


def refusal_cure(error: SQLAlchemyError) -> str | None:
    """What to do if a server runs and lets us in neither now nor later; None if it is not so."""
    if not isinstance(error, OperationalError) or isinstance(error.orig, sqlite3.Error):
        return None
    state, said = getattr(error.orig, "sqlstate", None), str(error.orig)
    if missing := _NO_DATABASE.search(said):
        return (
            f"the server runs, but has no database {missing[1]}: make it with `createdb "
            f"{shlex.quote(missing[1])}` (its --host, --port and --username are those of the "
            "URL), then run `pagemill db upgrade`; or correct PAGEMILL_DATABASE_URL"
        )
    if _NOT_LET_IN.search(said) or (state is not None and state.startswith(_REFUSED_STATES)):
        return (
            "the server runs, but does not let us in: correct the user and the password in "
            "PAGEMILL_DATABASE_URL, or let the server's pg_hba.conf take them"
        )
    return None


def is_away(error: SQLAlchemyError) -> bool:
    """Whether the connection to a server was lost, or could not be made."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    if refusal_cure(error) is not None:
        return False
    state = getattr(error.orig, "sqlstate", None)
    return (
        error.connection_invalidated
        or (state is None and isinstance(error, OperationalError))
        or (state is not None and state.startswith(_AWAY))
    )


def hint(error: SQLAlchemyError) -> str:
    if isinstance(error, PoolTimeout):
        return "; too many threads of this process wait for the database"
    if not isinstance(error, DBAPIError):
        return ""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        if _sqlite_code(original) in _SQLITE_LOCKED:
            return "; another program holds a transaction open in it: close that program"
        if is_full(error):
            return "; make room on its disk"
        if _sqlite_code(original) in _SQLITE_UNWRITABLE:
            return "; check that its folder exists and may be written, SQLite writes beside it too"
        if "no such table" in str(original):
            return f": {UPGRADE_HINT}"
        return ""
    state = getattr(original, "sqlstate", None)
    if state == _UNDEFINED_TABLE:
        return f": {UPGRADE_HINT}"
    if state is None and any(words in str(original) for words in _NO_ROOM):
        return "; close other connections, or let the server take more of them (max_connections)"
    if error.connection_invalidated or state is None or state.startswith(("08", "57P")):
        return "; check that the server runs and PAGEMILL_DATABASE_URL is right"
    return ""


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code; the extended one says more in its higher bits."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
