"""Connections to PostgreSQL that are cut: nothing is lost, nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, text

from jobs import patience
from jobs.database import Database
from jobs.errors import DatabaseError, StateConflict
from jobs.records import Counts
from jobs.states import ChunkState, JobState
from jobs.store import Store, notifications
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.job_store import ROWS, StoreUnderTest, new_job, new_plan


@pytest.fixture
def back(migrated_postgres: str) -> Iterator[StoreUnderTest]:
    """The database without a proxy between."""
    database = Database(migrated_postgres)
    made = StoreUnderTest(database)
    made.delete_all()
    yield made
    database.close()


@pytest.fixture
def proxy(migrated_postgres: str) -> Iterator[CuttingProxy]:
    with cutting_proxy(migrated_postgres) as proxy:
        yield proxy


@pytest.fixture
def database(proxy: CuttingProxy) -> Iterator[Database]:
    database = Database(proxy.url)
    yield database
    database.close()


@pytest.fixture
def store(back: StoreUnderTest, database: Database) -> Store:
    return Store(database)


class TerminatedOnce:
    """Work whose connection the server closes in the middle, the first time."""

    def __init__(self, back: StoreUnderTest, times: int = 1) -> None:
        self.back = back
        self.times = times
        self.runs = 0

    def __call__(self, connection: Connection) -> Any:
        self.runs += 1
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        connection.execute(text("UPDATE jobs SET input_uri = input_uri || '!'"))
        if self.runs <= self.times:
            with self.back.database.begin() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        return connection.scalar(text("SELECT input_uri FROM jobs"))


def test_a_transaction_that_was_cut_off_is_done_again(
    back: StoreUnderTest, database: Database
) -> None:
    back.add((1,))
    work = TerminatedOnce(back)
    assert database.transact(work) == "rows.jsonl!"
    assert work.runs == 2


def test_a_server_that_stays_away_is_said_in_words(
    back: StoreUnderTest, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "AWAY_SECONDS", 0.5)
    back.add((1,))
    work = TerminatedOnce(back, times=99)
    with pytest.raises(DatabaseError, match="check that the server runs"):
        database.transact(work)
    assert work.runs > 1


def test_idle_connections_that_were_cut_are_made_anew(
    back: StoreUnderTest, database: Database
) -> None:
    with database.read() as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
    with back.database.begin() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    with database.read() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) != pid


def test_a_job_is_inserted_once(back: StoreUnderTest, store: Store, proxy: CuttingProxy) -> None:
    job = new_job((2,))
    proxy.cut_next_commit()
    assert store.insert_job(job).id == job.id
    assert proxy.cuts == 1
    assert len(back.store.chunks(job.id)) == 2
    with pytest.raises(StateConflict):
        store.insert_job(job)


def test_a_chunk_is_committed_once(back: StoreUnderTest, store: Store, proxy: CuttingProxy) -> None:
    job = back.add((2,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    proxy.cut_next_commit()
    assert store.commit_chunk(lease, "p", Counts(completed=ROWS))
    assert proxy.cuts == 1
    after = back.store.job(job.id)
    assert (after.chunks_left, after.counts.completed) == (1, ROWS)


def test_a_chunk_is_handed_back_once(
    back: StoreUnderTest, store: Store, proxy: CuttingProxy
) -> None:
    job = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    proxy.cut_next_commit()
    store.release_chunk(lease, Counts(completed=1))
    assert proxy.cuts == 1
    (chunk,) = back.store.chunks(job.id)
    assert (chunk.state, chunk.counts) == (ChunkState.QUEUED, Counts(completed=1))


def test_a_claim_without_an_answer_costs_no_more_than_a_lease(
    back: StoreUnderTest, store: Store, proxy: CuttingProxy
) -> None:
    job = back.add((2,))
    proxy.cut_next_commit()
    lease = store.claim_chunk("w", "m")
    assert proxy.cuts == 1
    assert lease is not None
    assert [c.state for c in back.store.chunks(job.id)] == [ChunkState.RUNNING] * 2
    back.expire_leases(ordinal=1 - lease.ordinal)
    assert back.store.requeue_expired() == 1
    assert back.store.claim_chunk("other", "m") is not None


def test_a_job_is_published_and_opened_again_once(
    back: StoreUnderTest, store: Store, proxy: CuttingProxy
) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    merge = store.claim_window(job.id, 0, "f")
    assert merge is not None
    proxy.cut_next_commit()
    assert store.finish_window(merge, "w0")
    last = store.claim_finalization(job.id, "f")
    assert last is not None
    proxy.cut_next_commit()
    assert store.finish_job(last, Counts(completed=ROWS))
    assert back.store.job(job.id).state == JobState.COMPLETED

    proxy.cut_next_commit()
    again = store.reopen(job.id, new_plan((1,)))
    assert (again.version, again.state) == (2, JobState.QUEUED)
    assert proxy.cuts == 3
    assert len(back.store.chunks(job.id)) == 1


def test_a_cancel_without_an_answer_is_one_cancel(
    back: StoreUnderTest, store: Store, proxy: CuttingProxy
) -> None:
    job = back.add((2,))
    proxy.cut_next_commit()
    assert store.request_cancel(job.id).state == JobState.FINALIZING
    assert proxy.cuts == 1


def test_a_job_whose_retry_failed_is_opened_again_once(
    back: StoreUnderTest, store: Store, proxy: CuttingProxy
) -> None:
    job = back.add((1,))
    back.complete(job.id)
    back.store.reopen(job.id, new_plan((1,)))
    proxy.cut_next_commit()
    assert store.fail_job(job.id, "model_unavailable", "no model")
    published = Counts(completed=ROWS)
    plan = replace(new_plan((1,)), follows=2, published=published)
    proxy.cut_next_commit()
    again = store.reopen(job.id, plan, Counts(completed=1))
    assert (again.version, again.state) == (3, JobState.QUEUED)
    assert again.counts == Counts(completed=ROWS - 1)
    assert proxy.cuts == 2
    assert len(back.store.chunks(job.id)) == 1


def test_notifications_are_put_off_once(
    back: StoreUnderTest, store: Store, proxy: CuttingProxy
) -> None:
    with back.database.begin() as connection:
        for number in range(3):
            url = f"https://{number // 2}.example/hook"
            notifications.record(connection, f"eval_{number}", "evaluation.failed", url, {})
    proxy.cut_next_commit()
    store.put_off_notifications("https://0.example/hook".__eq__, "silent", lambda _: 60.0)
    assert proxy.cuts == 1
    found = {told.subject: told.attempts for told in back.store.notifications()}
    assert found == {"eval_0": 1, "eval_1": 1, "eval_2": 0}


def test_leases_are_cut_once(back: StoreUnderTest, store: Store, proxy: CuttingProxy) -> None:
    back.add((1,))
    assert store.claim_chunk("w", "m") is not None
    with back.database.begin() as connection:
        connection.execute(text("UPDATE chunks SET lease_expires_at = now() + interval '1 day'"))
    proxy.cut_next_commit()
    store.cut_times()
    assert proxy.cuts == 1
    assert store.cut_times() == 0
