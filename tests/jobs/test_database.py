"""Connections, transactions, the clock, and errors in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg.errors
import pytest
from sqlalchemy import Connection, column, delete, insert, select, table, text
from sqlalchemy.exc import OperationalError

from jobs import database as database_module
from jobs import patience
from jobs.database import Database, upgrade
from jobs.database_url import parse_url
from jobs.errors import DatabaseError, DatabaseUnavailable, SettingsError
from jobs.sqltypes import database_now
from jobs.tables import chunks, jobs, windows
from tests.support.job_store import StoreUnderTest


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("jobs.db", "is not a database URL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://u:secret@h/d", "'mysql'; pagemill works with sqlite and postgresql"),
        ("postgresql://me:secret@h:port/d", r"'postgresql://me:\*\*\*@h:port/d' is not a database"),
        (
            "postgresql://me:a@secret@h/d",
            r"'postgresql://\*\*\*@h/d'.* has a # or an @ where none can be.*%40 for @",
        ),
        ("sqlite://me:secret@h/d", "is not a database URL"),
        ("sqlite:///d.db?timeout=x&password=secret", "is not a database URL"),
        ("host=h password=secret", "is not a database URL"),
    ],
)
def test_refuses_urls_it_cannot_work_with(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Database(url)
    assert caught.value.exit_code == 64
    assert "secret" not in str(caught.value)
    assert "PAGEMILL_DATABASE_URL" in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
def test_postgresql_means_psycopg_3(scheme: str) -> None:
    assert parse_url(f"{scheme}://host/db").drivername == "postgresql+psycopg"


def test_a_missing_driver_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(database_module, "create_engine", missing)
    with pytest.raises(DatabaseError, match=r"--editable '\.\[postgres\]'` in a clone"):
        Database("postgresql://host/db")


def test_an_exception_rolls_back(back: StoreUnderTest) -> None:
    job = back.add()
    with pytest.raises(ZeroDivisionError), back.database.begin() as connection:
        assert connection.execute(delete(chunks)).rowcount / 0
    assert len(back.store.chunks(job.id)) == 3


def test_a_reader_sees_one_state_and_changes_nothing(back: StoreUnderTest) -> None:
    with back.database.read() as reader:
        count = select(text("count(*)")).select_from(jobs)
        assert reader.scalar(count) == 0
        back.add()
        assert reader.scalar(count) == 0
    assert len(back.store.list_jobs()) == 1


def test_sqlite_is_opened_for_many_processes(migrated_sqlite: Path) -> None:
    database = Database(f"sqlite:///{migrated_sqlite}")
    with database.read() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1
    database.close()


def test_foreign_keys_hold(back: StoreUnderTest) -> None:
    back.add()
    with pytest.raises(DatabaseError, match=r"(?i)foreign key"), back.database.begin() as c:
        c.execute(delete(windows))


def test_a_write_waits_for_another_though_it_reads_first(tmp_path: Path) -> None:
    """A deferred transaction that read before it writes would be refused at once."""
    upgrade(f"sqlite:///{tmp_path}/jobs.db")
    database = Database(f"sqlite:///{tmp_path}/jobs.db")
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, timeout=0)
    with database.begin() as connection:
        connection.execute(select(jobs)).all()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN IMMEDIATE")
    other.close()
    database.close()


def test_a_database_that_stays_locked_is_said_in_words(
    migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(patience, "UNDONE_SECONDS", 0.1)
    database = Database(f"sqlite:///{migrated_sqlite}")
    other = sqlite3.connect(migrated_sqlite, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    runs = []
    with pytest.raises(DatabaseError, match=r"empty\.db: database is locked; another program"):
        database.transact(lambda _: runs.append(1))
    assert runs == []  # BEGIN itself was refused
    other.close()
    database.close()


NOTES = table("notes", column("id"))


class Failing:
    """Work that fails a number of times with an error of the driver."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.runs = 0

    def __call__(self, connection: Connection) -> str:
        self.runs += 1
        connection.execute(insert(NOTES), {"id": str(self.runs)})
        if self.left:
            self.left -= 1
            raise OperationalError("UPDATE …", None, self.error)
        return "done"


@pytest.fixture
def notes(database: Database) -> Iterator[None]:
    """A table of the test's own, that shows which attempts were committed."""
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE notes (id VARCHAR)"))
    yield
    with database.begin() as connection:
        connection.execute(text("DROP TABLE notes"))


def busy() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY_SNAPSHOT
    return error


TRANSIENT = [busy(), psycopg.errors.DeadlockDetected(), psycopg.errors.SerializationFailure()]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda e: type(e).__name__)
def test_a_transaction_is_tried_again_as_a_whole(
    database: Database, notes: None, error: Exception
) -> None:
    work = Failing(error, times=2)
    assert database.transact(work) == "done"
    with database.read() as connection:
        assert connection.scalars(select(NOTES.c.id)).all() == ["3"]


def test_it_gives_up_after_a_while(
    database: Database, notes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "UNDONE_SECONDS", 0.2)
    work = Failing(psycopg.errors.DeadlockDetected("deadlock detected"), times=99)
    with pytest.raises(DatabaseUnavailable, match="deadlock detected"):
        database.transact(work)
    assert 2 < work.runs < 20


def test_an_error_that_would_come_again_is_not_tried_again(database: Database, notes: None) -> None:
    work = Failing(sqlite3.OperationalError("disk full"), times=1)
    with pytest.raises(DatabaseError):
        database.transact(work)
    assert work.runs == 1


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "AWAY_SECONDS", 0.1)
    database = Database("postgresql://me:secret@/db?host=/nonexistent")
    with pytest.raises(DatabaseError, match="check that the server runs and PAGE") as caught:
        database.transact(lambda c: c.execute(text("SELECT 1")))
    assert "secret" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/missing/jobs.db")
    with pytest.raises(DatabaseError, match="check that its folder exists"), database.read():
        pass


def test_missing_tables_name_the_command(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(DatabaseError, match="run `pagemill db upgrade`"), database.read() as c:
        c.execute(select(jobs))
    database.close()


# ---- revision


def test_the_revision_fits_after_an_upgrade(database: Database) -> None:
    database.check_revision()


def test_a_missing_file_is_not_created_by_looking(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(DatabaseError, match=r"there is no database at .* `pagemill db upgrade`"):
        database.check_revision()
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_tables(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    database = Database(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(DatabaseError, match="no tables of pagemill: run `pagemill db upgrade`"):
        database.check_revision()
    database.close()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM alembic_version", "at revision none, .*: run `pagemill db upgrade`"),
        ("UPDATE alembic_version SET version_num = '9999'", "a newer pagemill upgraded it"),
    ],
)
def test_a_database_of_another_revision(tmp_path: Path, statement: str, said: str) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    upgrade(url)
    database = Database(url)
    with database.begin() as connection:
        connection.execute(text(statement))
    with pytest.raises(DatabaseError, match=said):
        database.check_revision()
    database.close()


# ---- the clock and the types


@pytest.mark.parametrize("seconds", [0, 90.5, -3600])
def test_the_clock_is_that_of_the_database(database: Database, seconds: float) -> None:
    with database.read() as connection:
        (read,) = connection.execute(select(database_now(seconds))).one()
    assert read.tzinfo is UTC
    expected = datetime.now(UTC) + timedelta(seconds=seconds)
    assert abs(read - expected) < timedelta(seconds=60)


def test_the_clock_goes_on_within_a_postgresql_transaction(database: Database) -> None:
    """A lease that was won after a long wait for a lock lasts its whole time."""
    with database.begin() as connection:
        first = connection.scalar(select(database_now()))
        readings = (connection.scalar(select(database_now())) for _ in range(10_000))
        assert any(reading > first for reading in readings)


def test_times_are_compared_as_times(back: StoreUnderTest) -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=9)))
    job = back.add(deadline_at=moment)
    assert job.deadline_at == moment
    with back.database.read() as connection:
        for offset, earlier in ((timedelta(0), False), (timedelta(microseconds=1), True)):
            query = select(jobs.c.id).where(jobs.c.deadline_at < moment + offset)
            assert (connection.scalar(query) is not None) == earlier


def test_a_time_without_a_zone_is_refused(back: StoreUnderTest) -> None:
    with pytest.raises(DatabaseError, match="has no time zone"):
        back.add(deadline_at=datetime(2030, 1, 1))  # noqa: DTZ001


def test_text_that_no_database_takes_is_escaped(back: StoreUnderTest) -> None:
    job = back.add()
    assert back.store.fail_job(job.id, "broken", "row \0 of \udcff.jsonl")
    assert back.store.job(job.id).error_message == r"row \x00 of \udcff.jsonl"
    assert back.store.job(job.id).options["system"] == "Be brief.\0 é"


@pytest.mark.quick
def test_what_libpq_asks_on_a_line_of_its_own_is_left_out() -> None:
    database = Database("postgresql://me:secret@127.0.0.1:1/d")
    with pytest.raises(DatabaseUnavailable) as caught, database.read():
        raise AssertionError("nobody listens there")
    said = str(caught.value)
    assert "refused; check that the server runs and PAGEMILL_DATABASE_URL is right" in said
    assert "Is the server" not in said
