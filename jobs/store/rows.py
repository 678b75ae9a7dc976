"""Rows of the tables as the records of `jobs.records`, and back."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from sqlalchemy import Connection, Row, Table
from sqlalchemy.dialects import postgresql, sqlite

from jobs.columns import COUNT_NAMES
from jobs.records import ChunkRecord, Counts, DeviceTime, JobRecord, WindowRecord, WindowSpec
from jobs.states import ChunkState, JobState

ZERO = Counts()

_JOB_COLUMNS = tuple(
    field.name
    for field in dataclasses.fields(JobRecord)
    if field.name not in ("state", "counts", "device", "notify_urls")
)


_counts_in = operator.attrgetter(*COUNT_NAMES)


def chunk_id(job_id: str, version: int, ordinal: int) -> str:
    return f"{job_id}-v{version}-{ordinal:06d}"


def insert_unless_there(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what to do on a conflict, which each database has in its own way."""
    kinds: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    return kinds[connection.dialect.name](table)


def inserted_unless_there(connection: Connection, table: Table, values: dict[str, Any]) -> bool:
    """Insert a row; False if there is one of its key, or of one of its unique columns."""
    inserted = connection.execute(
        insert_unless_there(connection, table).values(values).on_conflict_do_nothing(),
        execution_options={"preserve_rowcount": True},
    )
    return bool(inserted.rowcount)


def count_values(counts: Counts) -> dict[str, int]:
    """Column values that set the counts of a row."""
    return dataclasses.asdict(counts)


def added_counts(table: Table, counts: Counts) -> dict[str, Any]:
    """Column values that add to the counts of a row."""
    return {name: table.c[name] + value for name, value in count_values(counts).items()}


def counts_of(row: Row[Any]) -> Counts:
    # PostgreSQL sums bigints to a Decimal.
    return Counts(*map(int, _counts_in(row)))


def device_values(device: DeviceTime) -> dict[str, float]:
    """Column values that set the device time of a row."""
    return {"device_seconds": device.seconds, "gpu_seconds": device.gpu_seconds}


def device_of(row: Row[*tuple[Any, ...]]) -> DeviceTime:
    return DeviceTime(row.device_seconds, row.gpu_seconds)


def job_record(row: Row[Any]) -> JobRecord:
    values = {name: row._mapping[name] for name in _JOB_COLUMNS}
    return JobRecord(
        state=JobState(row.state),
        counts=counts_of(row),
        device=device_of(row),
        notify_urls=tuple(row.notify_urls or ()),
        **values,
    )


def chunk_record(row: Row[Any]) -> ChunkRecord:
    return ChunkRecord(
        id=row.id,
        job_id=row.job_id,
        version=row.version,
        ordinal=row.ordinal,
        window=row.window_ordinal,
        rows=row.rows,
        state=ChunkState(row.state),
        lease_epoch=row.lease_epoch,
        lease_owner=row.lease_owner,
        lease_expires_at=row.lease_expires_at,
        part=row.part,
        counts=counts_of(row),
        device=device_of(row),
    )


def window_record(row: Row[Any]) -> WindowRecord:
    return WindowRecord(
        job_id=row.job_id,
        version=row.version,
        window=WindowSpec(
            ordinal=row.ordinal,
            first_row=row.first_row,
            rows=row.rows,
            rejected=row.rejected,
            base=row.base,
        ),
        chunks_left=row.chunks_left,
        merged=row.merged,
        epoch=row.lease_epoch,
    )
