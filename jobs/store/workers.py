"""Workers as they report themselves.

Nothing that decides who gets a chunk depends on these rows: leases do that. They are there to
be looked at.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update

from jobs.records import WorkerRecord, WorkerStatus
from jobs.sqltypes import database_now
from jobs.store.rows import insert_unless_there
from jobs.tables import LEFT, WORKER_STATES, workers
from jobs.workers import host_and_pid

KEPT_SECONDS = 7 * 24 * 3600.0  # after a worker was last seen

_STATUS = tuple(field.name for field in dataclasses.fields(WorkerStatus))
_PLAIN = ("id", "host", "pid", "model", "software", "concurrency", "started_at", "seen_at")


def is_alive(lease_seconds: float) -> ColumnElement[bool]:
    """Whether a worker was seen of late, and has not said that it left."""
    return workers.c.state.not_in(LEFT) & (workers.c.seen_at > database_now(-lease_seconds))


def register_worker(
    connection: Connection,
    worker_id: str,
    model: str,
    concurrency: int,
    software: str,
    status: WorkerStatus,
) -> None:
    host, pid = host_and_pid(worker_id)
    connection.execute(
        insert_unless_there(connection, workers)
        .values(
            id=worker_id,
            host=host,
            pid=pid,
            model=model,
            software=software,
            concurrency=concurrency,
            started_at=database_now(),
            seen_at=database_now(),
            **_values(status),
        )
        .on_conflict_do_nothing()
    )


def report_worker(connection: Connection, worker_id: str, status: WorkerStatus) -> bool:
    reported = connection.execute(
        update(workers)
        .where(workers.c.id == worker_id)
        .values(seen_at=database_now(), **_values(status))
    )
    return reported.rowcount == 1


def worker_records(
    connection: Connection, lease_seconds: float, with_departed: bool
) -> list[WorkerRecord]:
    alive = is_alive(lease_seconds)
    query = select(workers, alive.label("alive")).order_by(workers.c.started_at, workers.c.id)
    if not with_departed:
        query = query.where(alive)
    return [_record(row) for row in connection.execute(query)]


def last_worker(connection: Connection, model: str, lease_seconds: float) -> WorkerRecord | None:
    """The worker of a model that was seen last."""
    query = select(workers, is_alive(lease_seconds).label("alive")).where(workers.c.model == model)
    row = connection.execute(query.order_by(workers.c.seen_at.desc()).limit(1)).one_or_none()
    return None if row is None else _record(row)


def prune_workers(connection: Connection) -> int:
    return connection.execute(
        delete(workers).where(workers.c.seen_at <= database_now(-KEPT_SECONDS))
    ).rowcount


def _values(status: WorkerStatus) -> dict[str, Any]:
    if status.state not in WORKER_STATES:
        raise ValueError(f"state is {status.state!r}; it must be one of {', '.join(WORKER_STATES)}")
    return dataclasses.asdict(status)


def _record(row: Row[Any]) -> WorkerRecord:
    found = row._mapping
    return WorkerRecord(
        status=WorkerStatus(**{name: found[name] for name in _STATUS}),
        alive=bool(row.alive),
        **{name: found[name] for name in _PLAIN},
    )
