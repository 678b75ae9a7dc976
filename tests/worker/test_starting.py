"""A worker that starts while its database is away."""

from __future__ import annotations

import threading

import pytest

from jobs.database import Database, upgrade
from jobs.errors import DatabaseError
from tests.support import postgres
from tests.support.deployment import wait_for
from worker import main


@pytest.fixture
def database():
    url = postgres.create_database()
    upgrade(url)
    database = Database(url)
    yield database
    database.close()
    postgres.drop_database(url)


def url_of(database):
    return database.url.render_as_string(hide_password=False)


def test_it_waits_until_it_is_back(database, caplog):
    checking = threading.Thread(target=main._check, args=(database,))
    with postgres.nobody_let_in(url_of(database)):
        checking.start()
        wait_for("a word", lambda: "waiting for the database" in caplog.text, 60)
    checking.join(60)
    assert not checking.is_alive()
    assert caplog.text.count("waiting for") == 1


def test_but_not_for_ever(database, monkeypatch):
    monkeypatch.setattr(main, "DATABASE_SECONDS", 0.0)
    with (
        postgres.nobody_let_in(url_of(database)),
        pytest.raises(DatabaseError, match="check that the server runs"),
    ):
        main._check(database)


def test_tables_that_do_not_fit_are_no_reason_to_wait(database):
    with database.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseError, match="a newer pagemill upgraded it"):
        main._check(database)
