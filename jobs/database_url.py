"""The URL of a database: SQLite in a file, or PostgreSQL."""

from __future__ import annotations

import re

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from jobs.errors import SettingsError
from jobs.shown_urls import ENCODE_PASSWORDS, without_password


def parse_url(url: str) -> URL:
    """A database URL that we can work with.

    Raises:
        SettingsError: it is no URL, or names neither an SQLite file nor PostgreSQL; passwords
            are not in the message.
    """
    shown = without_password(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise no_url(shown) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise SettingsError(
                f"{shown!r} is an SQLite database in memory, which other processes cannot see; "
                "name a file: sqlite:////absolute/path.db (PAGEMILL_DATABASE_URL)"
            )
        return parsed
    if backend in ("postgresql", "postgres"):
        # Where a password ends, or a parameter, is not certain: the end may be no host.
        if "#" in url or not re.fullmatch(r"[^@]*|\w[\w+]*://[^@/?][^@?]*@[^@]*", url):
            raise SettingsError(
                f"{shown!r} (PAGEMILL_DATABASE_URL) has a # or an @ where none can be: "
                f"{ENCODE_PASSWORDS}"
            )
        return parsed.set(drivername="postgresql+psycopg")
    raise SettingsError(
        f"{shown!r} names the database {backend!r}; pagemill works with "
        "sqlite and postgresql (PAGEMILL_DATABASE_URL)"
    )


def no_url(shown: str) -> SettingsError:
    """The error of what cannot be understood as a URL; `shown` has no password."""
    return SettingsError(
        f"{shown!r} is not a database URL; write sqlite:////absolute/path.db or "
        "postgresql://user:password@host:port/database (PAGEMILL_DATABASE_URL); "
        f"{ENCODE_PASSWORDS}"
    )
