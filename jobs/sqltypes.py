"""Column types and the database's clock, alike on SQLite and PostgreSQL.

All times are UTC and come from the database's clock: hosts whose clocks differ, or jump, still
agree on when a lease ends.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String, TypeDecorator
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ColumnElement, literal
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Double

from jobs.storable import storable


class UtcDateTime(TypeDecorator[datetime]):
    """An aware `datetime` in UTC; `timestamptz` on PostgreSQL, sortable text on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone; times in the database are UTC")
        value = value.astimezone(UTC)
        # SQLite's text has no place for an offset.
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class SafeText(TypeDecorator[str]):
    """Text that every database takes, whatever a file name or an exception had in it.

    NUL and lone surrogates (a file name that is not UTF-8) are written as backslash escapes.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return storable(value)


class _ClockReading(FunctionElement[datetime]):
    """The database's clock, some seconds from now."""

    type = UtcDateTime()
    inherit_cache = True


def database_now(plus_seconds: ColumnElement[float] | float = 0.0) -> ColumnElement[datetime]:
    """The time by the database's clock, plus some seconds (which may be negative)."""
    if not isinstance(plus_seconds, ColumnElement):
        plus_seconds = literal(plus_seconds, Double)
    return _ClockReading(plus_seconds)


@compiles(_ClockReading, "sqlite")
def _on_sqlite(element: _ClockReading, compiler: SQLCompiler, **kw: Any) -> str:
    (seconds,) = element.clauses
    # The format of SQLAlchemy's DateTime, so that text order is time order. SQLite's clock
    # counts milliseconds.
    return (
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', "
        f"printf('%+.3f seconds', {compiler.process(seconds, **kw)}))"
    )


@compiles(_ClockReading, "postgresql")
def _on_postgresql(element: _ClockReading, compiler: SQLCompiler, **kw: Any) -> str:
    (seconds,) = element.clauses
    # now() would be the start of the transaction, which may have waited for a lock since;
    # clock_timestamp() is volatile, which keeps the planner from using an index.
    return f"(statement_timestamp() + make_interval(secs => {compiler.process(seconds, **kw)}))"
