"""`kill -9` at each named point of a job: the next process ends it as if nothing had been."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.database import Database
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.crash_points import OF_A_JOB, OF_A_NOTIFICATION, OF_A_RETRY, OF_A_SECOND_RETRY
from tests.support.dying_player import LEASE_SECONDS, deliver, killed_at, play, reopen
from tests.support.job_store import StoreUnderTest
from tests.support.on_disk import check_clean, check_never_ahead, published
from tests.support.played_job import PlayedJob, Window, add_job
from tests.support.receiver import receiving

WINDOWS = [Window([[2, 0, 3], [4]], rejected=[1]), Window([[6, 5]]), Window([], rejected=[7])]
ROWS = 8
TIMEOUT = 60
COMMITS = (
    *("commit_chunk", "finish_window", "finish_job", "reopen"),
    *("claim_notification", "notification_delivered"),
)


@pytest.fixture
def job(database_url: str, tmp_path: Path) -> Iterator[PlayedJob]:
    database = Database(database_url)
    store = Store(database, lease_seconds=LEASE_SECONDS)
    yield add_job(store, Storage(str(tmp_path / "storage")), WINDOWS)
    database.close()


def backends(points: dict[str, Any]) -> list[Any]:
    """Every point on both databases; in `make test` on PostgreSQL only those beside a commit."""
    return [
        pytest.param(
            database,
            point,
            marks=[pytest.mark.chaos]
            if database == "postgresql" and points[point].method not in COMMITS
            else [],
        )
        for database in ("sqlite", "postgresql")
        for point in points
    ]


def to_the_end(job: PlayedJob) -> None:
    """What the sweepers of other processes do."""
    deadline = time.monotonic() + TIMEOUT
    while not job.store.job(job.id).state.terminal or job.store.garbage():
        assert time.monotonic() < deadline
        job.store.requeue_expired()
        play(job)
        time.sleep(0.05)


def check_done(job: PlayedJob, version: int) -> None:
    """Each row is there once, as in calm, and the books agree."""
    record = job.store.job(job.id)
    assert (record.state, record.published_version) == (JobState.COMPLETED, version)
    rows = job.published(version)
    assert [row["row_index"] for row in rows] == list(range(ROWS))
    refused = {row for window in WINDOWS for row in window.rejected}
    for number, row in enumerate(rows):
        if number in refused:
            assert row["error"]["code"] == "invalid_json"  # type: ignore[index]
        else:
            assert row["text"] == job.answer(number).text
    answered = ROWS - len(refused) - len(job.failing)
    counts = record.counts
    assert (counts.completed, counts.failed) == (answered, ROWS - answered)
    assert counts.completion_tokens == 3 * answered
    assert record.chunks_left == 0
    check_never_ahead(job.store, job.storage, job.id)
    check_clean(job.store, job.storage, job.id)


@pytest.mark.parametrize(("database_url", "point"), backends(OF_A_JOB), indirect=["database_url"])
def test_a_job_whose_worker_dies_there(job: PlayedJob, database_url: str, point: str) -> None:
    killed_at(point, database_url, job.storage, job.id)

    check_never_ahead(job.store, job.storage, job.id)
    before = published(job.storage, job.id)
    to_the_end(job)

    check_done(job, 1)
    assert before.items() <= published(job.storage, job.id).items()


@pytest.mark.parametrize(
    ("database_url", "point"), backends(OF_A_NOTIFICATION), indirect=["database_url"]
)
def test_a_notification_whose_sender_dies_there(
    database_url: str, point: str, tmp_path: Path
) -> None:
    """It arrives all the same, under one id."""
    database = Database(database_url)
    store = Store(database, lease_seconds=LEASE_SECONDS)
    with receiving() as receiver:
        job = add_job(
            store, Storage(str(tmp_path / "storage")), WINDOWS, notify_urls=(receiver.url,)
        )
        killed_at(point, database_url, job.storage, job.id)

        deliver(job)  # not yet: it could be that the other one only takes its time
        (told,) = store.notifications(job.id)
        taken = point == "that is noted"
        assert told.state == ("delivered" if taken else "pending")
        StoreUnderTest(database).let_notifications_be_due()
        deliver(job)
        (told,) = store.notifications(job.id)
        assert told.state == "delivered"
        assert told.attempts == (1 if taken else 2)
        assert len(receiver.requests) == (2 if point == "the URL has taken it" else 1)
        assert {r.headers["Pagemill-Delivery"] for r in receiver.requests} == {told.id}
    database.close()


@pytest.mark.parametrize(("database_url", "point"), backends(OF_A_RETRY), indirect=["database_url"])
def test_a_retry_that_dies_there(job: PlayedJob, database_url: str, point: str) -> None:
    job.failing = {3, 4}
    to_the_end(job)
    check_done(job, 1)
    before = published(job.storage, job.id)
    job.failing = set()

    killed_at(point, database_url, job.storage, job.id)

    check_never_ahead(job.store, job.storage, job.id)
    reopen(job)
    to_the_end(job)
    check_done(job, 2)
    assert before.items() <= published(job.storage, job.id).items()


@pytest.mark.parametrize(
    ("database_url", "point"), backends(OF_A_SECOND_RETRY), indirect=["database_url"]
)
def test_a_retry_of_one_that_failed_dies_there(
    job: PlayedJob, database_url: str, point: str
) -> None:
    job.failing = {3, 4}
    to_the_end(job)
    before = published(job.storage, job.id)
    job.failing = set()
    reopen(job)
    lease = job.claim()
    job.spool(lease, job.rows_of(lease)[:1])
    assert job.store.fail_job(job.id, "files_damaged", "torn", lease)

    killed_at(point, database_url, job.storage, job.id)

    assert before.items() <= published(job.storage, job.id).items()
    reopen(job, 3)
    to_the_end(job)
    record = job.store.job(job.id)
    assert (record.state, record.published_version) == (JobState.COMPLETED, 3)
    assert [row["row_index"] for row in job.published(3)] == list(range(ROWS))
    assert all(row["text"] for row in job.published(3) if row["row_index"] not in (1, 7))
    assert before.items() <= published(job.storage, job.id).items()
