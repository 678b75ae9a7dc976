"""Jobs to put into a store, and what only a test may do to it: look, and turn time forward."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, event, select, text, update

from jobs.database import Database
from jobs.evaluation_tables import NOTIFICATION_IS_PENDING, notifications
from jobs.records import (
    ChunkSpec,
    Counts,
    DeviceTime,
    ErrorTally,
    JobRecord,
    NewJob,
    Plan,
    WindowSpec,
)
from jobs.sqltypes import database_now
from jobs.store import Store
from jobs.tables import chunks, jobs, metadata, windows

_numbers = itertools.count(1)

ROWS = 4  # rows of every chunk
SOME_TIME = DeviceTime(2.5, 1.5)


def tallies(failed: int, first_row: int = 0) -> tuple[ErrorTally, ...]:
    """Errors of so many rows in a worker: one `nan_logits`, the others `engine_error`."""
    found = []
    if failed > 1:
        found.append(
            ErrorTally("engine_error", failed - 1, first_row + 1, first_row + 2, None, "it broke")
        )
    if failed:
        found.append(ErrorTally("nan_logits", 1, first_row, first_row + 1, None, "no number"))
    return tuple(found)


def new_plan(chunks_of_windows: Sequence[int] = (2, 1), rejected: int = 0) -> Plan:
    """A plan with so many chunks in each window."""
    window_of_chunk = [w for w, number in enumerate(chunks_of_windows) for _ in range(number)]
    first_rows = itertools.accumulate((ROWS * n for n in chunks_of_windows), initial=0)
    return Plan(
        input_path="_input/v1.parquet",
        windows=tuple(
            WindowSpec(ordinal=i, first_row=first, rows=ROWS * number)
            for i, (number, first) in enumerate(zip(chunks_of_windows, first_rows, strict=False))
        ),
        chunks=tuple(
            ChunkSpec(ordinal=i, window=window, rows=ROWS)
            for i, window in enumerate(window_of_chunk)
        ),
        total_rows=ROWS * sum(chunks_of_windows) + rejected,
        rejected=rejected,
        rejected_errors=(ErrorTally("invalid_json", rejected, 9, 10, "prompt", "no JSON"),)
        if rejected
        else (),
    )


def new_job(
    chunks_of_windows: Sequence[int] = (2, 1),
    *,
    id: str | None = None,
    model: str = "m",
    priority: int = 0,
    rejected: int = 0,
    deadline_at: datetime | None = None,
    notify_urls: tuple[str, ...] = (),
) -> NewJob:
    id = id or f"job_{next(_numbers):012d}"
    return NewJob(
        id=id,
        name=None,
        model=model,
        input_uri="rows.jsonl",
        folder=id,
        options={"sampling": {"temperature": 0.5}, "system": "Be brief.\0 é"},
        seed=2**63 - 1,
        priority=priority,
        deadline_at=deadline_at,
        plan=new_plan(chunks_of_windows, rejected),
        notify_urls=notify_urls,
    )


def _without_fsync(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF")


class StoreUnderTest:
    """A store with its database, and the back door that tests need."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = Store(database)
        if database.engine.dialect.name == "sqlite":
            # A test's data need not outlive a power cut.
            event.listen(database.engine, "connect", _without_fsync)

    def add(self, *args: Any, **kwargs: Any) -> JobRecord:
        return self.store.insert_job(new_job(*args, **kwargs))

    def expire_leases(self, **of: Any) -> None:
        """Let leases of chunks run out, as if time had passed."""
        matching = [chunks.c[name] == value for name, value in of.items()]
        with self.database.begin() as connection:
            connection.execute(
                update(chunks)
                .where(chunks.c.lease_expires_at.is_not(None), *matching)
                .values(lease_expires_at=database_now(-1.0))
            )

    def expire_merge_leases(self) -> None:
        """Let leases of windows and finalizations run out."""
        with self.database.begin() as connection:
            for table in (windows, jobs):
                connection.execute(
                    update(table)
                    .where(table.c.lease_expires_at.is_not(None))
                    .values(lease_expires_at=database_now(-1.0))
                )

    def let_notifications_be_due(self) -> None:
        """As if the time until the next attempts had passed."""
        with self.database.begin() as connection:
            connection.execute(
                update(notifications)
                .where(NOTIFICATION_IS_PENDING)
                .values(next_at=database_now(-1.0))
            )

    def set_job(self, job_id: str, **values: Any) -> None:
        with self.database.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))

    def set_chunks(self, job_id: str, **values: Any) -> None:
        with self.database.begin() as connection:
            connection.execute(update(chunks).where(chunks.c.job_id == job_id).values(**values))

    def set_chunk(self, chunk_id: str, **values: Any) -> None:
        with self.database.begin() as connection:
            connection.execute(update(chunks).where(chunks.c.id == chunk_id).values(**values))

    def view(self, name: str, job_id: str) -> list[dict[str, Any]]:
        """The rows of a job in one of the views."""
        query = text(f"SELECT * FROM {name} WHERE job_id = :job_id").bindparams(job_id=job_id)
        with self.database.read() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def chunk_rows(self, job_id: str) -> list[Row[Any]]:
        with self.database.read() as connection:
            query = select(chunks).where(chunks.c.job_id == job_id).order_by(chunks.c.id)
            return list(connection.execute(query))

    def delete_all(self) -> None:
        with self.database.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())

    def finish_work(self, job_id: str, counts: Counts = Counts(completed=ROWS)) -> None:  # noqa: B008
        """Commit every chunk of a job that can still be claimed."""
        model = self.store.job(job_id).model
        while (lease := self.store.claim_chunk("w", model)) is not None:
            assert lease.job_id == job_id
            assert self.store.commit_chunk(lease, f"{lease.chunk_id}.parquet", counts)

    def finalize(self, job_id: str, counts: Counts, errors: Sequence[ErrorTally] = ()) -> None:
        """Merge all windows of a drained job and finish it."""
        for job, window in self.store.windows_to_merge():
            if job == job_id:
                merge = self.store.claim_window(job, window, "f")
                assert merge is not None
                assert self.store.finish_window(merge, f"w{window}.parquet")
        assert job_id in self.store.jobs_to_finalize()
        lease = self.store.claim_finalization(job_id, "f")
        assert lease is not None
        assert self.store.finish_job(lease, counts, errors)

    def complete(self, job_id: str) -> None:
        """Take a job to its end."""
        self.finish_work(job_id)
        total = self.store.job(job_id).total_rows
        self.finalize(job_id, Counts(completed=total))


def half_done(back: StoreUnderTest) -> str:
    """A job of two chunks whose first is done, and whose second runs and has reported."""
    job = back.add((2,), rejected=1)
    first, second = (back.store.claim_chunk(w, "m") for w in ("host:1:a", "host:1:b"))
    assert first is not None
    assert second is not None
    back.store.commit_chunk(first, "p", Counts(3, 1, 0, 0, 20, 10, 30), tallies(1), SOME_TIME)
    back.store.renew(
        second.owner,
        {second.chunk_id: (1, Counts(1, 1, 0, 0, 8, 4, 10))},
        {second.chunk_id: SOME_TIME},
    )
    return job.id
