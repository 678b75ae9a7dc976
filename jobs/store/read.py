"""What may be asked about jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, func, select

from jobs.columns import COUNT_NAMES, DEVICE_NAMES
from jobs.records import ChunkRecord, JobProgress, JobRecord, TakenSlots, WindowRecord
from jobs.sqltypes import database_now
from jobs.states import HAS_WORK, JobState
from jobs.store import notifications
from jobs.store.by_id import job_row
from jobs.store.rows import chunk_id, chunk_record, counts_of, device_of, job_record, window_record
from jobs.store.workers import is_alive, last_worker
from jobs.tables import (
    CHUNK_IS_HANDED_BACK,
    CHUNK_IS_RUNNING,
    DRAINING,
    STARTING,
    chunks,
    jobs,
    windows,
    workers,
)

_AT_ONCE = 1000  # chunks that are asked for by one statement
_SUMS = [
    *(func.coalesce(func.sum(chunks.c[name]), 0).label(name) for name in COUNT_NAMES),
    *(func.coalesce(func.sum(chunks.c[name]), 0.0).label(name) for name in DEVICE_NAMES),
]


def job(connection: Connection, job_id: str) -> JobRecord:
    return job_record(job_row(connection, job_id))


def job_of_key(connection: Connection, idempotency_key: str) -> JobRecord | None:
    query = select(jobs).where(jobs.c.idempotency_key == idempotency_key)
    row = connection.execute(query).one_or_none()
    return None if row is None else job_record(row)


def served_models(connection: Connection) -> set[str]:
    """Models that a worker has loaded: one that is still known, or one that began a job."""
    by_workers = select(workers.c.model).where(workers.c.device.is_not(None))
    by_jobs = select(jobs.c.model).where(jobs.c.started_at.is_not(None))
    return set(connection.scalars(by_workers.union(by_jobs)))


def is_there(connection: Connection, job_id: str) -> bool:
    """Whether there is a job of that very id."""
    return connection.scalar(select(jobs.c.id).where(jobs.c.id == job_id)) is not None


def list_jobs(
    connection: Connection,
    states: Collection[JobState],
    limit: int,
    model: str | None,
    name: str | None,
    since: datetime | None,
) -> list[JobRecord]:
    query = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
    if states:
        query = query.where(jobs.c.state.in_(states))
    if model is not None:
        query = query.where(jobs.c.model == model)
    if name is not None:
        query = query.where(jobs.c.name.icontains(name, autoescape=True))
    if since is not None:
        query = query.where(jobs.c.created_at >= since)
    return [job_record(row) for row in connection.execute(query)]


def progress(connection: Connection, job_id: str, lease_seconds: float) -> JobProgress:
    row = job_row(connection, job_id)
    record = job_record(row)
    running = connection.execute(
        select(database_now().label("now"), func.count().label("chunks"), *_SUMS).where(
            chunks.c.job_id == record.id, CHUNK_IS_RUNNING
        )
    ).one()
    # What is finished of a chunk that was handed back is in the spool, and not lost.
    handed_back = connection.execute(
        select(*_SUMS).where(chunks.c.job_id == record.id, CHUNK_IS_HANDED_BACK)
    ).one()
    alive = connection.execute(
        select(workers.c.id, workers.c.state, workers.c.message, workers.c.concurrency)
        .where(workers.c.model == row.model, is_alive(lease_seconds))
        .order_by(workers.c.started_at, workers.c.id)
    ).all()
    # One that has a chunk is ready, and may not have said so yet.
    starts = not running.chunks and bool(alive) and all(w.state == STARTING for w in alive)
    slots = {worker.id: worker.concurrency for worker in alive if worker.state != DRAINING}
    may_begin = record.state in HAS_WORK and record.paused_at is None
    return JobProgress(
        job=record,
        counts=record.counts + counts_of(running) + counts_of(handed_back),
        device=record.device + device_of(running) + device_of(handed_back),
        chunks_running=running.chunks,
        chunks_done=row.chunks_done,
        now=running.now,
        workers_alive=len(alive),
        last_worker=None if alive else last_worker(connection, row.model, lease_seconds),
        taken=_taken(connection, slots) if may_begin and not running.chunks else None,
        starting=alive[0].message if starts else None,
        notifications=notifications.of_end(connection, record) if record.notify_urls else (),
    )


def _taken(connection: Connection, slots: Mapping[str, int]) -> TakenSlots | None:
    """What keeps workers from beginning a job; None if one of them has room, or none will have.

    Args:
        slots: how many chunks each of those workers may take.
    """
    if not slots:
        return None
    # Their leases, and not what they said last: few chunks run, however many there are.
    held = connection.execute(
        select(chunks.c.lease_owner, chunks.c.job_id, func.count().label("chunks"))
        .where(CHUNK_IS_RUNNING, chunks.c.lease_owner.in_(slots))
        .group_by(chunks.c.lease_owner, chunks.c.job_id)
    ).all()
    taken = Counter[str]()
    for lease in held:
        taken[lease.lease_owner] += lease.chunks
    if any(taken[worker] < allowed for worker, allowed in slots.items()):
        return None
    return TakenSlots(len(slots), tuple(sorted({lease.job_id for lease in held})))


def chunk_records(
    connection: Connection, job_id: str, version: int | None, window: int | None = None
) -> list[ChunkRecord]:
    row = job_row(connection, job_id)
    query = select(chunks).where(
        chunks.c.job_id == row.id, chunks.c.version == (version or row.version)
    )
    if window is not None:
        query = query.where(chunks.c.window_ordinal == window)
    return [chunk_record(found) for found in connection.execute(query.order_by(chunks.c.ordinal))]


def chunks_of(
    connection: Connection, job_id: str, version: int, ordinals: Collection[int]
) -> list[ChunkRecord]:
    """Those chunks of a version that have these numbers, and no other is read."""
    ids = [chunk_id(job_id, version, ordinal) for ordinal in ordinals]
    found = (
        chunk_record(row)
        for start in range(0, len(ids), _AT_ONCE)
        for row in connection.execute(
            select(chunks).where(chunks.c.id.in_(ids[start : start + _AT_ONCE]))
        )
    )
    return sorted(found, key=lambda chunk: chunk.ordinal)


def window_records(connection: Connection, job_id: str, version: int | None) -> list[WindowRecord]:
    row = job_row(connection, job_id)
    query = (
        select(windows)
        .where(windows.c.job_id == row.id, windows.c.version == (version or row.version))
        .order_by(windows.c.ordinal)
    )
    return [window_record(found) for found in connection.execute(query)]
