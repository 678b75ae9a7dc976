"""`pagemill db`."""

from __future__ import annotations

import typer

from jobs.cli.group import Helpful

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
    """Make the tables, or bring those of an older pagemill up to date; safe to repeat.

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
def check() -> None:
    """Tell whether the database fits this pagemill; ends with 69 if it does not.

    \b
    Example:
      pagemill db check && pagemill worker --model smollm2-135m
    """
    from jobs.database import Database
    from jobs.settings import Settings

    database = Database(Settings.from_env().database_url)
    try:
        database.check_revision()
    finally:
        database.close()
    print(f"{database.shown_url} is up to date")
