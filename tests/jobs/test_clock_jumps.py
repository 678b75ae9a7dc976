"""The database's clock is put back by a day: what lies far ahead of it then comes soon."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sqlalchemy import select, update

from jobs.errors import SettingsError
from jobs.evaluation_tables import evaluations
from jobs.evaluation_tables import notifications as outbox
from jobs.notifications.attempts import LONGEST_WAIT, wait_after
from jobs.records import Counts
from jobs.settings import Settings
from jobs.sqltypes import database_now
from jobs.store import clock, notifications
from jobs.sweep import mend
from jobs.tables import chunks, jobs, windows
from tests.support.evaluations import add_evaluation
from tests.support.job_store import ROWS, StoreUnderTest

pytestmark = pytest.mark.quick

DAY = 24 * 3600.0


def left_by_the_clock(back: StoreUnderTest, table: Any, column: str, seconds: float = DAY) -> None:
    """All times of a column that are there lie so far ahead."""
    with back.database.begin() as connection:
        connection.execute(
            update(table)
            .where(table.c[column].is_not(None))
            .values({column: database_now(seconds)})
        )


def ahead(back: StoreUnderTest, table: Any, column: str) -> float:
    """How far ahead a time lies, in seconds."""
    with back.database.read() as connection:
        now, time = connection.execute(select(database_now(), table.c[column])).one()
    return (time - now).total_seconds()


def test_a_dead_worker_keeps_its_chunk_for_a_lease_and_not_for_a_day(back: StoreUnderTest) -> None:
    job = back.add((1,))
    assert back.store.claim_chunk("dead", "m") is not None
    left_by_the_clock(back, chunks, "lease_expires_at")
    assert mend(back.store) == 0
    assert 50 < ahead(back, chunks, "lease_expires_at") <= 60
    back.expire_leases()
    assert mend(back.store) == 1
    again = back.store.claim_chunk("other", "m")
    assert again is not None
    assert again.job_id == job.id


def test_a_worker_that_lives_loses_nothing(back: StoreUnderTest) -> None:
    back.add((1,))
    lease = back.store.claim_chunk("alive", "m")
    assert lease is not None
    left_by_the_clock(back, chunks, "lease_expires_at")
    assert mend(back.store) == 0
    held = {lease.chunk_id: (lease.epoch, Counts())}
    assert back.store.renew("alive", held).lost == frozenset()
    assert back.store.commit_chunk(lease, "p", Counts(completed=ROWS))


def test_no_lease_that_may_be_taken_is_cut(back: StoreUnderTest) -> None:
    """Others may have longer ones than the process that looks."""
    back.add((1,))
    assert back.store.claim_chunk("patient", "m") is not None
    seconds = clock.LONGEST_LEASE_SECONDS - 5
    left_by_the_clock(back, chunks, "lease_expires_at", seconds)
    assert back.store.cut_times() == 0
    assert ahead(back, chunks, "lease_expires_at") > seconds - 60
    with pytest.raises(SettingsError, match="lease_seconds is 3601; it must be at most 3600"):
        Settings.from_env({"PAGEMILL_LEASE_SECONDS": "3601"})


def test_a_merge_and_an_end_go_on(back: StoreUnderTest) -> None:
    job = back.add((1,))
    back.finish_work(job.id)
    assert back.store.claim_window(job.id, 0, "dead") is not None
    left_by_the_clock(back, windows, "lease_expires_at")
    mend(back.store)
    assert ahead(back, windows, "lease_expires_at") <= 60
    back.expire_merge_leases()
    merge = back.store.claim_window(job.id, 0, "f")
    assert merge is not None
    assert back.store.finish_window(merge, "w0.parquet")
    assert back.store.claim_finalization(job.id, "dead") is not None
    left_by_the_clock(back, jobs, "lease_expires_at")
    mend(back.store)
    assert ahead(back, jobs, "lease_expires_at") <= 60


def test_an_evaluation_goes_on(back: StoreUnderTest) -> None:
    add_evaluation(back.store, "nightly")
    left_by_the_clock(back, evaluations, "look_at")
    mend(back.store)
    assert ahead(back, evaluations, "look_at") <= 0


def test_what_has_to_be_told_is_told(back: StoreUnderTest) -> None:
    with back.database.begin() as connection:
        notifications.record(connection, "eval_1", "evaluation.failed", "https://a.example/", {})
    left_by_the_clock(back, outbox, "next_at", 1.25 * LONGEST_WAIT)
    assert back.store.cut_times() == 0
    assert (wait_after(17) or 0) <= 1.25 * LONGEST_WAIT
    left_by_the_clock(back, outbox, "next_at")
    mend(back.store)
    assert back.store.claim_notification(60) is not None


def test_it_is_told_and_only_then(back: StoreUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    back.add((1,))
    back.store.claim_chunk("w", "m")
    with caplog.at_level(logging.WARNING, logger="pagemill"):
        mend(back.store)
        assert caplog.records == []
        left_by_the_clock(back, chunks, "lease_expires_at")
        mend(back.store)
        mend(back.store)
    (said,) = caplog.records
    assert said.event == "clock_put_back"  # type: ignore[attr-defined]
