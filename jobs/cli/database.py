"""`pagemill db`."""

from __future__ import annotations

import json

import typer

from jobs.cli.group import Helpful
from jobs.cli.options import Json

commands = typer.Typer(
    cls=Helpful,
    rich_markup_mode=None,
    help="""Make, upgrade and check the database.

    \b
    Example:
      pagemill db upgrade && pagemill db check
    """,
)


@commands.command("upgrade")
def upgrade() -> None:
    """Make the tables, or bring older ones up to date. It may be repeated.

    \b
    Example:
      PAGEMILL_DATABASE_URL=postgresql://pagemill@db/pagemill pagemill db upgrade
    """
    from jobs.cli.deployment import tell_of_wait
    from jobs.database import upgrade
    from jobs.settings import Settings
    from jobs.shown_urls import without_password

    url = Settings.from_env().database_url
    upgrade(url, tell_of_wait)
    print(f"{without_password(url)} is up to date")


@commands.command("check")
def check(as_json: Json = False) -> None:
    """Tell whether the database fits this pagemill. Ends with 69 if it does not.

    \b
    Example:
      pagemill db check && pagemill worker --model smollm2-135m
    """
    from jobs.database import Database
    from jobs.errors import DatabaseError
    from jobs.settings import Settings
    from jobs.tables import SCHEMA_REVISION

    database = Database(Settings.from_env().database_url)
    trouble: str | None = None
    try:
        database.check_revision()
    except DatabaseError as error:
        trouble = str(error)
        raise
    finally:
        database.close()
        if as_json:
            shape = {"database": database.shown_url, "needs_revision": SCHEMA_REVISION}
            print(json.dumps({**shape, "trouble": trouble}))
    if not as_json:
        print(f"{database.shown_url} is up to date")
