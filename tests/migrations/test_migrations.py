"""The migrations make the tables and views that `jobs` describes, wherever they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from jobs.database import Database, upgrade
from jobs.errors import DatabaseError
from jobs.evaluation_tables import metadata
from jobs.tables import SCHEMA_REVISION
from jobs.views import VIEWS, create_statements
from tests.support.child import child
from tests.support.migrating import ROOT, config, schema


def run_alembic(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(ROOT / "pyproject.toml"), *arguments],
        env={**os.environ, "PAGEMILL_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_migrations_make_the_schema_of_the_code(url: str, database: Database) -> None:
    """Compared as the database reports it: constraints, index conditions, views too."""
    with database.begin() as connection:
        metadata.create_all(connection)
        for statement in create_statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
        described = schema(connection)
        for view in VIEWS:
            connection.exec_driver_sql(f"DROP VIEW {view}")
        metadata.drop_all(connection)
        assert schema(connection) == {}
    upgrade(url)
    with database.read() as connection:
        migrated = schema(connection)
    assert migrated.keys() == {*metadata.tables, *VIEWS}
    assert migrated == described


def test_alembic_finds_nothing_to_migrate(url: str, database: Database) -> None:
    upgrade(url)
    with database.begin() as connection:
        command.check(config(connection))


def test_the_command_of_ci(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ci.db"
    behind = run_alembic(url, "check")
    assert behind.returncode != 0
    assert "not up to date" in behind.stderr + behind.stdout
    upgrade(url)
    checked = run_alembic(url, "check")
    assert (checked.returncode, checked.stdout) == (
        0,
        "No new upgrade operations detected.\n",
    ), checked.stderr


def test_a_new_column_would_be_noticed(url: str, database: Database) -> None:
    upgrade(url)
    with database.begin() as connection:
        connection.execute(text("ALTER TABLE jobs DROP COLUMN cancel_requested_at"))
        with pytest.raises(Exception, match="cancel_requested_at"):
            command.check(config(connection))


def test_down_to_nothing_and_up_again(url: str, database: Database) -> None:
    upgrade(url)
    with database.begin() as connection:
        before = schema(connection)
        command.downgrade(config(connection), "base")
        assert schema(connection) == {}
    with pytest.raises(DatabaseError, match="at revision none"):
        database.check_revision()
    upgrade(url)
    with database.read() as connection:
        assert schema(connection) == before


def test_a_second_upgrade_changes_nothing(url: str, database: Database) -> None:
    upgrade(url)
    with database.begin() as connection:
        before = schema(connection)
    upgrade(url)
    with database.begin() as connection:
        assert schema(connection) == before
    database.check_revision()


def test_a_newer_database_is_left_alone(url: str, database: Database) -> None:
    upgrade(url)
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match=r"cannot be upgraded: .*newer\s+pagemill made it"):
        upgrade(url)


def test_a_failed_migration_leaves_nothing_behind(url: str, database: Database) -> None:
    with database.begin() as connection:
        # The last table that the first migration would create.
        connection.execute(text("CREATE TABLE chunks (id INTEGER)"))
    with pytest.raises(DatabaseError, match="already exists"):
        upgrade(url)
    with database.begin() as connection:
        assert inspect(connection).get_table_names() == ["chunks"]
        connection.execute(text("DROP TABLE chunks"))
    upgrade(url)
    database.check_revision()


def test_processes_that_upgrade_at_once(url: str, database: Database) -> None:
    code = "import sys; from jobs.database import upgrade; input(); upgrade(sys.argv[1])"
    command = [sys.executable, "-c", code, url]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        processes = [stack.enter_context(child(command, cwd=ROOT, **pipes)) for _ in range(4)]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    database.check_revision()


def test_from_another_folder_with_migrations_of_its_own(tmp_path: Path) -> None:
    """The user's project may well have a package of that name."""
    theirs = tmp_path / "migrations"
    theirs.mkdir()
    (theirs / "__init__.py").write_text("raise SystemExit('the wrong migrations')")
    (theirs / "env.py").write_text("raise SystemExit('the wrong migrations')")
    code = f"""if True:
        import sys
        sys.path.append({str(ROOT)!r})
        from jobs.database import Database, upgrade
        upgrade("sqlite:///deep/down/jobs.db")
        Database("sqlite:///deep/down/jobs.db").check_revision()
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "deep" / "down" / "jobs.db").exists()


def test_the_revision_of_the_code_is_the_newest_migration() -> None:
    scripts = ScriptDirectory.from_config(config())
    assert scripts.get_heads() == [SCHEMA_REVISION]
