"""The view `job_progress`, and the promised shape of both views."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import inspect, text

from jobs.records import Counts
from jobs.sqltypes import database_now
from jobs.store import Store
from tests.support.job_store import ROWS, SOME_TIME, StoreUnderTest, half_done, new_plan

pytestmark = pytest.mark.quick

PROGRESS = {
    "job_id": "text", "name": "text", "state": "text", "model": "text", "priority": "integer",
    "version": "integer", "rows_total": "integer", "rows_completed": "integer",
    "rows_failed": "integer", "rows_cancelled": "integer", "rows_expired": "integer",
    "rows_done": "integer", "percent": "real", "prompt_tokens": "integer",
    "cached_tokens": "integer", "completion_tokens": "integer", "chunks_total": "integer",
    "chunks_done": "integer", "chunks_running": "integer", "chunks_queued": "integer",
    "workers": "integer", "created_at": "time", "started_at": "time", "finished_at": "time",
    "deadline_at": "time", "elapsed_seconds": "real", "rows_per_second": "real",
    "tokens_per_second": "real", "eta_seconds": "real", "error_code": "text",
    "error_message": "text", "published_version": "integer", "output_path": "text",
    "waiting_for": "text", "paused_at": "time", "device_seconds": "real",
    "tokens_per_device_hour": "real", "gpu_seconds": "real",
}  # fmt: skip
ERRORS = {
    "job_id": "text", "version": "integer", "scope": "text", "code": "text", "rows": "integer",
    "row_index": "integer", "line": "integer", "field": "text", "message": "text",
}  # fmt: skip
POSTGRES_TYPES = {
    "TEXT": "text",
    "INTEGER": "integer",
    "BIGINT": "integer",
    "DOUBLE PRECISION": "real",
    "TIMESTAMP": "time",
}


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def seen(back: StoreUnderTest, job_id: str) -> dict[str, Any]:
    (row,) = back.view("job_progress", job_id)
    return row


# ---- shape


@pytest.mark.parametrize(("view", "columns"), [("job_progress", PROGRESS), ("job_errors", ERRORS)])
def test_names_order_and_types_are_those_of_the_promise(
    back: StoreUnderTest, view: str, columns: dict[str, str]
) -> None:
    job_id = half_done(back)
    back.set_job(job_id, state="failed", error_code="broken", error_message="it broke")
    with back.database.read() as connection:
        found = inspect(connection).get_columns(view)
        assert [column["name"] for column in found] == list(columns)
        if connection.dialect.name == "postgresql":
            types = {c["name"]: POSTGRES_TYPES[str(c["type"])] for c in found}
            assert types == columns
            assert all(c["type"].timezone for c in found if columns[c["name"]] == "time")
            return
        for name, kind in columns.items():
            stored = {"time": "text"}.get(kind, kind)
            kinds = connection.scalars(text(f"SELECT typeof({name}) FROM {view}")).all()
            assert set(kinds) <= {stored, "null"}, name


def test_times_can_be_read_by_what_the_database_offers(back: StoreUnderTest) -> None:
    job = back.add(deadline_at=datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC))
    row = seen(back, job.id)
    if isinstance(row["created_at"], str):
        assert row["deadline_at"] == "2031-05-06 07:08:09.000000"
        row = {
            name: datetime.fromisoformat(row[name]).replace(tzinfo=UTC)
            for name in ("created_at", "deadline_at")
        }
    assert row["deadline_at"] == job.deadline_at
    assert row["created_at"] == job.created_at


# ---- progress


def test_a_job_that_waits(back: StoreUnderTest) -> None:
    job = back.add((2, 1), priority=3, rejected=1)
    row = seen(back, job.id)
    assert (row["state"], row["priority"], row["version"]) == ("queued", 3, 1)
    assert (row["rows_total"], row["rows_failed"], row["rows_done"]) == (3 * ROWS + 1, 1, 1)
    assert row["percent"] == 7.6  # never rounded up: 1 / 13 is 7.69 percent
    assert (row["chunks_total"], row["chunks_queued"], row["workers"]) == (3, 3, 0)
    for name in ("started_at", "elapsed_seconds", "rows_per_second", "eta_seconds", "output_path"):
        assert row[name] is None, name


def test_a_job_that_runs_counts_its_running_chunks(back: StoreUnderTest) -> None:
    row = seen(back, half_done(back))
    assert {name: value for name, value in row.items() if name.startswith("rows_")} == {
        "rows_total": 9,
        "rows_completed": 4,
        "rows_failed": 3,
        "rows_cancelled": 0,
        "rows_expired": 0,
        "rows_done": 7,
        "rows_per_second": row["rows_per_second"],
    }
    assert (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]) == (28, 14, 40)
    assert (row["chunks_done"], row["chunks_running"], row["chunks_queued"]) == (1, 1, 0)
    assert row["workers"] == 1
    assert (row["device_seconds"], row["gpu_seconds"]) == (5.0, 3.0)
    assert row["tokens_per_device_hour"] == (28 - 14 + 40) * 3600 / 5


def test_workers_are_counted_once(back: StoreUnderTest) -> None:
    job = back.add((4,))
    for worker in ("a", "a", "b"):
        assert back.store.claim_chunk(worker, "m")
    assert (seen(back, job.id)["workers"], seen(back, job.id)["chunks_running"]) == (2, 3)


def test_speed_and_time_left_are_of_what_this_version_computes(back: StoreUnderTest) -> None:
    """The row that was refused at submit was no work: six rows in ten seconds, two are left."""
    job_id = half_done(back)
    back.set_job(job_id, started_at=database_now(-10.0))
    row = seen(back, job_id)
    assert row["elapsed_seconds"] == pytest.approx(10, abs=1)
    assert row["rows_per_second"] == pytest.approx(0.6, rel=0.1)
    assert row["tokens_per_second"] == pytest.approx(4, rel=0.1)
    assert row["eta_seconds"] == pytest.approx(2 / 0.6, abs=1)


def test_a_retry_begins_to_measure_anew(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2,))
    back.finish_work(job.id, Counts(3, 1, completion_tokens=50))
    back.finalize(job.id, Counts(6, 2, completion_tokens=100))
    store.reopen(job.id, new_plan((1,)), Counts(failed=2, completion_tokens=40))
    assert store.claim_chunk("w", "m")
    back.set_job(job.id, started_at=database_now(-10.0))
    row = seen(back, job.id)
    assert (row["version"], row["rows_done"], row["rows_per_second"]) == (2, 6, 0)
    assert (row["tokens_per_second"], row["eta_seconds"]) == (0, None)
    assert (row["chunks_total"], row["chunks_done"]) == (1, 0)
    assert (row["published_version"], row["output_path"]) == (1, f"{job.folder}/v1")


def test_a_job_that_has_ended_stands_still(back: StoreUnderTest) -> None:
    job = back.add((1,))
    back.complete(job.id)
    back.set_job(
        job.id,
        started_at=datetime(2030, 1, 1, tzinfo=UTC),
        finished_at=datetime(2030, 1, 1, tzinfo=UTC) + timedelta(minutes=2, milliseconds=500),
    )
    row = seen(back, job.id)
    assert (row["state"], row["percent"], row["elapsed_seconds"]) == ("completed", 100, 120.5)
    assert row["rows_per_second"] == pytest.approx(ROWS / 120.5, abs=0.001)
    assert row["eta_seconds"] is None
    assert row["output_path"] == f"{job.folder}/v1"


def test_the_view_and_the_store_agree(back: StoreUnderTest, store: Store) -> None:
    jobs = [half_done(back), back.add((2,)).id, back.add((1,)).id]
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    assert lease.job_id == jobs[1]
    store.release_chunk(lease, Counts(2, 0, 1, 1, 5, 6, 7), SOME_TIME)
    back.finish_work(back.add((1,), model="other").id)
    store.request_cancel(jobs[2])
    for job_id in jobs:
        row, progress = seen(back, job_id), store.progress(job_id)
        for field in dataclasses.fields(Counts):
            name = field.name if field.name.endswith("_tokens") else f"rows_{field.name}"
            assert row[name] == getattr(progress.counts, field.name), (job_id, name)
        assert row["device_seconds"] == progress.device.seconds
        assert row["gpu_seconds"] == progress.device.gpu_seconds
        assert row["chunks_running"] == progress.chunks_running
        assert row["chunks_done"] == progress.chunks_done
        assert row["state"] == progress.job.state


def test_a_job_without_rows_divides_by_nothing(back: StoreUnderTest) -> None:
    assert seen(back, back.add((0,)).id)["percent"] is None
