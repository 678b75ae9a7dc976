"""An insert whose commit was sent and not answered: the job is there once, with its folder.

PostgreSQL may be at such a commit for long (it waits for a disk, or for a replica) after the
connection was cut. A connection of the test is that session of the server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from jobs.database import Database
from jobs.errors import DatabaseUnavailable
from jobs.parts import read_chunk_input
from jobs.records import JobRecord, NewJob
from jobs.store import Store, submit
from tests.support.command_line import CommandLine
from tests.support.deployment import wait_for
from tests.support.job_store import StoreUnderTest, new_job

on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


class Session:
    """A session of the server that has inserted a job, and whose client is gone."""

    def __init__(self, database_url: str, job: NewJob) -> None:
        self._database = Database(database_url)
        self._connection = self._database.engine.connect()
        submit.insert_job(self._connection, job, False)

    def end(self, commit: bool = True) -> None:
        if commit:
            self._connection.commit()
        self.close()

    def close(self) -> None:
        """Give up what was not committed; once more, it does nothing."""
        self._connection.close()
        self._database.close()


@contextmanager
def in_a_thread(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """What it returns is in the list once the block has ended."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    try:
        yield found
    finally:
        thread.join(60)
    assert not thread.is_alive()


def somebody_waits(back: StoreUnderTest) -> bool:
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with back.database.read() as connection:
        return bool(connection.scalar(text(query)))


@on_postgresql
@pytest.mark.parametrize("commit", [True, False])
def test_whether_a_job_is_there_is_known_when_its_insert_has_ended(
    back: StoreUnderTest, database_url: str, commit: bool
) -> None:
    job = new_job((2,))
    session = Session(database_url, job)
    with in_a_thread(lambda: back.store.was_inserted(job)) as found, closing(session):
        wait_for("the question", lambda: somebody_waits(back))
        session.end(commit)
    assert found == [commit]
    assert [record.id for record in back.store.list_jobs()] == [job.id] * commit


@on_postgresql
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_attempt_inserts_it_if_the_first_one_did_not(
    back: StoreUnderTest, database_url: str, commit: bool
) -> None:
    job = new_job((2,))
    session = Session(database_url, job)

    def again() -> JobRecord:
        return back.database.transact(lambda c: submit.insert_job(c, job, True))

    with in_a_thread(again) as found, closing(session):
        wait_for("the attempt", lambda: somebody_waits(back))
        session.end(commit)
    assert [record.id for record in found] == [job.id]
    assert len(back.store.chunks(job.id)) == 2
    assert [event.event for event in back.store.events(job.id)] == ["submitted"]


def test_nothing_is_known_of_a_job_that_was_never_inserted(back: StoreUnderTest) -> None:
    job = new_job((1,))
    assert not back.store.was_inserted(job)
    assert back.store.list_jobs() == []
    back.store.insert_job(job)
    assert back.store.was_inserted(job)
    assert len(back.store.chunks(job.id)) == 1


@on_postgresql
@pytest.mark.parametrize("commit", [True, False])
def test_a_submit_keeps_the_folder_of_a_job_that_comes_later(
    back: StoreUnderTest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    commit: bool,
) -> None:  # fmt: skip
    cli = CommandLine(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", database_url)
    enders: list[threading.Thread] = []

    def cut_off(store: Store, job: NewJob) -> JobRecord:
        session = Session(database_url, job)

        def end() -> None:
            time.sleep(1)
            session.end(commit)

        enders.append(threading.Thread(target=end))
        enders[0].start()
        raise DatabaseUnavailable("database: the connection was cut")

    monkeypatch.setattr(Store, "insert_job", cut_off)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{i}"}) + "\n" for i in range(3)))
    try:
        _, said = cli("submit", str(path), "--model", "m", expect=69)
    finally:
        for ender in enders:
            ender.join()
    assert "the connection was cut" in said
    jobs = back.store.list_jobs()
    assert len(jobs) == commit
    assert [name for name in cli.storage.folders() if name.startswith("job_")] == [
        job.id for job in jobs
    ]
    for job in jobs:
        rows = read_chunk_input(cli.storage.job(job.folder), "_input/v1.parquet", 0)
        assert rows["row_index"].to_pylist() == [0, 1, 2]
