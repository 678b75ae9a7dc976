"""Databases that refuse for a while: locked, crowded, or stricter than ours by default."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import SQLAlchemyError

from jobs import database as database_module
from jobs import patience
from jobs.database import Database, upgrade
from jobs.errors import DatabaseError, DatabaseUnavailable, DatabaseUnusable
from jobs.store import Store
from tests.jobs.test_leases_at_once import (
    test_a_cancel_in_the_middle_of_it as cancel_in_the_middle,
)
from tests.jobs.test_leases_at_once import test_every_lease_is_won_once as every_lease_is_won_once
from tests.support import postgres
from tests.support.child import child
from tests.support.deployment import Deployment, wait_for
from tests.support.job_store import StoreUnderTest, new_job

LOCK = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


# ---- SQLite, locked by another process


def test_a_command_waits_for_a_locked_database_and_says_so(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "home")
    (deployment.home / "rows.jsonl").write_text('{"prompt": "a"}\n')
    command = [sys.executable, "-P", "-m", "jobs", "submit", "rows.jsonl", "--model", "m"]
    with child(
        [sys.executable, "-c", LOCK, str(deployment.home / "pagemill.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as locker:  # fmt: skip
        assert locker.stdout is not None
        assert locker.stdin is not None
        assert locker.stdout.readline() == b"locked\n"
        assert deployment.cli("list", "--json").stdout.strip() == "[]"  # readers are let in
        with child(
            command, env=deployment.env, cwd=deployment.home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as submit:  # fmt: skip
            assert submit.stderr is not None
            assert submit.stdout is not None
            said = submit.stderr.readline()
            locker.stdin.close()
            assert submit.wait(60) == 0
            assert submit.stdout.read().startswith("job_")
    assert said.startswith("Waiting for the database sqlite:///")
    assert "locked; another program holds a transaction open in it" in said


@pytest.mark.quick
def test_a_lock_is_waited_out_and_told_of_once(
    migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(patience, "TELL_SECONDS", 0.05)
    told: list[DatabaseError] = []
    database = Database(f"sqlite:///{migrated_sqlite}", told.append)
    with closing(sqlite3.connect(migrated_sqlite, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        thread = threading.Thread(target=lambda: database.transact(lambda _: None))
        thread.start()
        wait_for("a word", lambda: told, 30)
        time.sleep(0.2)
        assert thread.is_alive()
        other.execute("ROLLBACK")
        thread.join(120)
        assert not thread.is_alive()
    assert len(told) == 1
    database.close()


# ---- PostgreSQL, whose default isolation is another one


@pytest.fixture
def serializable() -> Iterator[StoreUnderTest]:
    url = postgres.create_database()
    upgrade(url)
    with closing(Database(url)) as database, database.begin() as connection:
        connection.execute(
            text(
                f"ALTER DATABASE {database.url.database} "
                "SET default_transaction_isolation = 'serializable'"
            )
        )
    with closing(Database(url)) as database:
        yield StoreUnderTest(database)
    postgres.drop_database(url)


def test_workers_at_once_where_transactions_are_serializable_by_default(
    serializable: StoreUnderTest,
) -> None:
    every_lease_is_won_once(serializable)
    cancel_in_the_middle(serializable)


# ---- PostgreSQL, which will never let us in


@pytest.mark.quick
def test_a_database_that_was_not_made_is_told_at_once(
    migrated_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience.Patience, "after", _only_refused)
    url = make_url(migrated_postgres).set(database="no db").render_as_string(False)
    for ask in (upgrade, lambda url: Database(url).check_revision()):
        with pytest.raises(DatabaseUnusable) as caught:
            ask(url)
        assert "has no database no db: make it with `createdb 'no db'`" in str(caught.value)
        assert "see that" not in str(caught.value)
        assert "check that" not in str(caught.value)


@pytest.mark.quick
def test_a_user_who_is_unknown_or_has_another_password_is_told_at_once(
    migrated_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience.Patience, "after", _only_refused)
    nobody = make_url(migrated_postgres).set(username="nobody_here").render_as_string(False)
    role = f"asked_{make_url(migrated_postgres).database}"
    with postgres.owned_with_a_password(migrated_postgres, role, "right") as known:
        wrong = make_url(known).set(password="wr0ng").render_as_string(False)
        for url in (nobody, wrong):
            with pytest.raises(DatabaseUnusable, match="does not let us in") as caught:
                upgrade(url)
            assert "wr0ng" not in str(caught.value)


_AFTER = patience.Patience.after


def _only_refused(self: patience.Patience, error: SQLAlchemyError) -> None:
    """Nothing of these tests is worth another try."""
    assert _AFTER(self, error) is None


# ---- PostgreSQL, with no room for one more connection


@pytest.fixture
def crowded() -> Iterator[str]:
    """The URL of a database for a role that may have one connection."""
    url = postgres.create_database()
    upgrade(url)
    role = f"crowd_{make_url(url).database}"
    with closing(Database(url)) as database, database.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1"))
        for kind in ("TABLES", "SEQUENCES"):
            connection.execute(text(f"GRANT ALL ON ALL {kind} IN SCHEMA public TO {role}"))
    yield make_url(url).set(username=role).render_as_string(hide_password=False)
    postgres.drop_database(url)
    postgres.drop_role(role)


@pytest.mark.quick
def test_a_connection_too_many_is_waited_for(crowded: str) -> None:
    with closing(Database(crowded)) as one, closing(Database(crowded)) as other:
        with one.begin() as connection:
            connection.execute(text("SELECT 1"))
            thread = threading.Thread(target=Store(other).insert_job, args=[new_job((1,))])
            thread.start()
            time.sleep(0.3)
        one.close()
        thread.join(120)
        assert len(Store(other).list_jobs()) == 1


@pytest.mark.quick
def test_too_many_connections_are_said_in_words(
    crowded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "AWAY_SECONDS", 0.1)
    with closing(Database(crowded)) as one, closing(Database(crowded)) as other, one.begin() as c:
        c.execute(text("SELECT 1"))
        with pytest.raises(DatabaseUnavailable, match=r"too many connections .*max_connections"):
            Store(other).insert_job(new_job((1,)))
