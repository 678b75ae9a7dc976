"""How Alembic reaches the database: over a connection that it is given, or by the settings."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from jobs.database import Database
from jobs.evaluation_tables import metadata  # of all tables: `jobs.tables` is loaded by it
from jobs.settings import Settings
from jobs.sqltypes import SafeText, UtcDateTime


def plain_type(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Write the type of the database into a new migration, not our class, which may change."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, SafeText):
        return "sa.String()"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_item=plain_type,
        # SQLite changes most things of a table only by a copy of it.
        render_as_batch=True,
        # True of SQLite too, now that we begin its transactions ourselves.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("migrations need a database; `--sql` is not supported")

given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database(Settings.from_env().database_url)
    try:
        with database.begin() as connection:
            run(connection)
    finally:
        database.close()
