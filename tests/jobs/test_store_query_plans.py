"""No statement reads a whole large table: a job of ten million rows has 80,000 chunks.

Every statement that the store sends is caught, and the database is asked how it would run it
among many chunks and many jobs that ended long ago. Those who poll the views send statements of
their own, of which some are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, select, text

from jobs.evaluation_tables import notifications
from jobs.records import Counts
from jobs.states import JobState
from jobs.store import Store
from jobs.tables import chunks, jobs, row_errors, windows
from tests.support.job_store import ROWS, StoreUnderTest, new_plan, tallies

LARGE = ("chunks", "windows", "row_errors")
# The constraint's own: its name has the first columns on both databases.
NOTIFICATIONS_OF = "notifications_"
ALL = Counts(completed=ROWS)
POLLED = [
    "SELECT * FROM job_progress WHERE job_id = 'job_large'",
    "SELECT state, percent, eta_seconds FROM job_progress WHERE job_id = 'job_large'",
    "SELECT job_id, percent FROM job_progress WHERE state = 'in_progress'",
    "SELECT * FROM job_progress ORDER BY created_at DESC LIMIT 20",
]
POLLED_ERRORS = [
    "SELECT * FROM job_errors WHERE job_id = 'job_large'",
    "SELECT code, sum(rows) FROM job_errors WHERE job_id = 'job_large' GROUP BY code",
]


@pytest.fixture
def crowded(back: StoreUnderTest) -> StoreUnderTest:
    """Many jobs that ended, some at work, and one with very many chunks."""
    on_postgres = back.database.engine.dialect.name == "postgresql"
    if on_postgres:
        # Rows that earlier tests deleted are still in the indexes, until a vacuum comes some time,
        # and the planner asks how large those are.
        with back.database.begin() as connection:
            connection.execute(text("TRUNCATE jobs, notifications CASCADE"))
    old = back.add((2, 2), rejected=2)
    back.finish_work(old.id)
    back.finalize(old.id, Counts(completed=4 * ROWS, failed=7), tallies(5))
    with back.database.begin() as connection:
        for table in (jobs, windows, chunks, row_errors):
            copy_rows(connection, table, old.id, 500)
    back.add([100] * 80, id="job_large")
    for _ in range(20):
        back.add((1,))
    told = back.add((1,), id="job_told", model="told", notify_urls=("https://a.example/",))
    back.complete(told.id)
    with back.database.begin() as connection:
        (row,) = connection.execute(select(notifications)).mappings()
        copies = [{"id": f"dlv_{i}", "subject": f"job_{i}:v1"} for i in range(2000)]
        done = {**row, "state": "delivered"}
        connection.execute(insert(notifications), [{**done, **copy} for copy in copies])
        if on_postgres:
            connection.execute(text("ANALYZE jobs, windows, chunks, row_errors, notifications"))
    return back


def copy_rows(connection: Connection, table: Any, job_id: str, number: int) -> None:
    """The rows of a job once more for each of many jobs."""
    of_job = table.c.id if table is jobs else table.c.job_id
    rows = [dict(row._mapping) for row in connection.execute(select(table).where(of_job == job_id))]
    copies = [
        {
            key: value.replace(job_id, f"job_old{n:06d}") if isinstance(value, str) else value
            for key, value in row.items()
        }
        for n in range(number)
        for row in rows
    ]
    connection.execute(insert(table), copies)


@contextmanager
def statements_of(back: StoreUnderTest) -> Iterator[dict[str, Any]]:
    """Each statement that is sent, with the parameters of its first time."""
    caught: dict[str, Any] = {}

    def catch(_c: Any, _cur: Any, statement: str, parameters: Any, _ctx: Any, many: bool) -> None:
        caught.setdefault(statement, parameters[0] if many else parameters)

    event.listen(back.database.engine, "before_cursor_execute", catch)
    yield caught
    event.remove(back.database.engine, "before_cursor_execute", catch)


def live_through_everything(back: StoreUnderTest) -> None:
    store = back.store
    store.models_wanted()
    store.chunks_to_wake(model="m")
    store.chunks_to_wake(model="m", lost=True)
    leases = [store.claim_chunk("w", "m") for _ in range(4)]
    first, second, third, *_ = (lease for lease in leases if lease is not None)
    store.renew("w", {third.chunk_id: (third.epoch, ALL)})
    store.commit_chunk(first, "p", ALL, tallies(2))
    store.release_chunk(second, ALL)
    back.expire_leases(id=third.chunk_id)
    assert store.requeue_expired() == 1
    store.progress("job_large")
    store.list_jobs([JobState.QUEUED])
    store.pause("job_large")
    store.resume("job_large")
    store.expire_overdue()
    small = back.add((1,), model="other")
    back.complete(small.id)
    lease = store.claim_window(small.id, 0, "f")
    assert lease is None
    store.reopen(small.id, new_plan((1,)))
    store.request_cancel(small.id)
    merge = store.claim_window(small.id, 0, "f")
    assert merge is not None
    store.renew_merge(merge)
    store.fail_job("job_large", "broken", "it broke")


def plan_of(back: StoreUnderTest, statement: str, parameters: Any) -> list[str]:
    """The lines of a statement's query plan."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}
    asked = f"{explain[back.database.engine.dialect.name]} {statement}"
    with back.database.begin() as connection:
        return [str(row[-1]) for row in connection.exec_driver_sql(asked, parameters or ())]


def full_reads(back: StoreUnderTest, statement: str, parameters: Any) -> list[str]:
    """Lines of the plan that read all of a large table."""
    scan = {"sqlite": "SCAN {}", "postgresql": "Seq Scan on {}"}
    scans = [scan[back.database.engine.dialect.name].format(table) for table in LARGE]
    plan = plan_of(back, statement, parameters)
    return [
        line
        for line in plan
        # These indexes hold few chunks: those at work, and those that a worker left.
        if any(scan in line for scan in scans)
        and not any(index in line for index in ("ix_chunks_running", "ix_chunks_handed_back"))
    ]


def test_no_statement_reads_a_whole_large_table(crowded: StoreUnderTest) -> None:
    with statements_of(crowded) as caught:
        live_through_everything(crowded)
    checked = 0
    for statement, parameters in caught.items():
        if statement.startswith(("SELECT", "UPDATE")):
            assert full_reads(crowded, statement, parameters) == [], statement
            checked += 1
    assert checked > 30


# One of each kind after the other in one crowd: to make it takes far longer than to ask.
MADE_FOR: list[tuple[Callable[[Store], object], str]] = [
    (lambda store: store.claim_chunk("w", "m"), "ix_chunks_to_claim"),
    (lambda store: store.chunks_to_wake(), "ix_chunks_to_wake"),
    (lambda store: store.requeue_expired(), "ix_chunks_running"),
    (lambda store: store.progress("job_large"), "ix_chunks_running"),
    (lambda store: store.progress("job_large"), "ix_chunks_handed_back"),
    (lambda store: list(store.due_notifications()), "ix_notifications_to_send"),
    (lambda store: store.claim_notification(60), "ix_notifications_to_send"),
    (lambda store: store.progress("job_told"), NOTIFICATIONS_OF),
]


def test_the_index_that_was_made_for_it_is_used(crowded: StoreUnderTest) -> None:
    for operation, index in MADE_FOR:
        with statements_of(crowded) as caught:
            operation(crowded.store)
        plans = [
            line
            for statement, parameters in caught.items()
            if statement.startswith("SELECT")
            for line in plan_of(crowded, statement, parameters)
        ]
        assert any(index in line for line in plans), plans


def test_polling_reads_no_whole_large_table(crowded: StoreUnderTest) -> None:
    for query in (*POLLED, *POLLED_ERRORS):
        assert full_reads(crowded, query, None) == [], query
    # Whoever polls all jobs shall not read 80,000 queued chunks of one of them.
    for query in POLLED:
        lines = [
            line for line in plan_of(crowded, query, None) if " chunks" in line or "_chunks" in line
        ]
        for index in ("ix_chunks_running", "ix_chunks_handed_back"):
            assert any(index in line for line in lines), lines
        assert not any("to_claim" in line or "of_window" in line for line in lines), lines
    # And the check itself sees a full read.
    assert full_reads(crowded, "SELECT count(*) FROM chunks WHERE rows > 3", None)
