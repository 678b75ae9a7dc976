"""The step to revision 0002, from a database in which jobs are."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, text

from jobs.database import Database, upgrade
from tests.support.migrating import config, schema

TIME = "2030-01-31 08:00:00.000000"

JOBS = [
    # id, state, version, rows, chunks, chunks_left, completed, failed, cancelled, tokens
    ("job_completed", "completed", 1, 10, 2, 0, 7, 3, 0, 70),
    ("job_retried", "in_progress", 2, 10, 2, 1, 8, 1, 0, 80),
    ("job_cancelled", "cancelled", 1, 8, 2, 0, 4, 0, 4, 40),
    ("job_queued", "queued", 1, 9, 2, 2, 0, 1, 0, 0),
]
CHUNKS = [
    # job, version, ordinal, rows, state, completed, failed, tokens
    ("job_completed", 1, 0, 4, "done", 4, 0, 40),
    ("job_completed", 1, 1, 4, "done", 3, 1, 30),
    ("job_retried", 1, 0, 9, "done", 7, 2, 70),
    ("job_retried", 2, 0, 1, "done", 1, 0, 10),
    ("job_retried", 2, 1, 1, "running", 0, 0, 5),
    ("job_cancelled", 1, 0, 4, "done", 4, 0, 40),
    ("job_cancelled", 1, 1, 4, "stopped", 0, 0, 0),
    ("job_queued", 1, 0, 4, "queued", 0, 0, 0),
    ("job_queued", 1, 1, 4, "queued", 0, 0, 0),
]


def fill(connection: Connection) -> None:
    """Jobs as revision 0001 knew them."""
    for id, state, version, total, chunks, left, completed, failed, cancelled, tokens in JOBS:
        connection.execute(
            text(
                "INSERT INTO jobs (id, state, model, input_uri, folder, options, seed, priority,"
                " version, input_path, total_rows, chunks_total, chunks_left, completed, failed,"
                " cancelled, expired, prompt_tokens, cached_tokens, completion_tokens,"
                " lease_epoch, created_at, started_at) VALUES (:id, :state, 'm', '-', :id, '{}',"
                " 7, 0, :version, 'p', :total, :chunks, :left, :completed, :failed, :cancelled,"
                f" 0, 0, 0, :tokens, 0, '{TIME}', '{TIME}')"
            ),
            {
                "id": id, "state": state, "version": version, "total": total, "chunks": chunks,
                "left": left, "completed": completed, "failed": failed, "cancelled": cancelled,
                "tokens": tokens,
            },
        )  # fmt: skip
        for number in range(1, version + 1):
            connection.execute(
                text(
                    "INSERT INTO windows (job_id, version, ordinal, first_row, rows, chunks_left,"
                    " lease_epoch) VALUES (:id, :version, 0, 0, :total, 0, 0)"
                ),
                {"id": id, "version": number, "total": total},
            )
    for job, version, ordinal, rows, state, completed, failed, tokens in CHUNKS:
        connection.execute(
            text(
                "INSERT INTO chunks (id, job_id, version, ordinal, window_ordinal, rows, state,"
                " lease_epoch, lease_expires_at, part, completed, failed, cancelled, expired,"
                " prompt_tokens, cached_tokens, completion_tokens, wake_at, sends) VALUES (:id,"
                " :job, :version, :ordinal, 0, :rows, :state, 1, :expires, :part, :completed,"
                f" :failed, 0, 0, 0, 0, :tokens, '{TIME}', 0)"
            ),
            {
                "id": f"{job}-v{version}-{ordinal:06d}", "job": job, "version": version,
                "ordinal": ordinal, "rows": rows, "state": state, "completed": completed,
                "failed": failed, "tokens": tokens,
                "expires": TIME if state == "running" else None,
                "part": "part" if state == "done" else None,
            },
        )  # fmt: skip


def rows_of(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(text(query))]


@pytest.fixture
def populated(database: Database) -> Database:
    """A database at revision 0001 with jobs in it."""
    with database.begin() as connection:
        command.upgrade(config(connection), "0001")
        fill(connection)
    return database


def test_an_upgrade_keeps_the_jobs_and_completes_them(url: str, populated: Database) -> None:
    with populated.read() as connection:
        before = rows_of(connection, "SELECT id, state, completed, options FROM jobs ORDER BY id")
        chunks = rows_of(connection, "SELECT * FROM chunks ORDER BY id")
    upgrade(url)
    with populated.read() as connection:
        after = rows_of(connection, "SELECT id, state, completed, options FROM jobs ORDER BY id")
        assert after == before
        found = rows_of(connection, "SELECT * FROM chunks ORDER BY id")
        assert [row[: len(chunks[0])] for row in found] == chunks  # later revisions add to the end
        known = "SELECT id, chunks_done, rows_at_start, tokens_at_start FROM jobs ORDER BY id"
        assert rows_of(connection, known) == [
            ("job_cancelled", 1, 0, 0),
            ("job_completed", 2, 2, 0),  # two rows were refused at submit
            ("job_queued", 0, 1, 0),
            ("job_retried", 1, 8, 70),  # the version computes two of ten rows
        ]


def test_the_views_know_the_jobs_of_before(url: str, populated: Database) -> None:
    upgrade(url)
    with populated.read() as connection:
        progress = "SELECT job_id, rows_done, chunks_done FROM job_progress ORDER BY job_id"
        assert rows_of(connection, progress) == [
            ("job_cancelled", 8, 1),
            ("job_completed", 10, 2),
            ("job_queued", 1, 0),
            ("job_retried", 9, 1),
        ]
        errors = "SELECT job_id, scope, code, rows FROM job_errors ORDER BY job_id"
        assert rows_of(connection, errors) == [
            ("job_cancelled", "row", "cancelled", 4),
            ("job_completed", "row", "not_recorded", 3),
            ("job_queued", "row", "not_recorded", 1),
            ("job_retried", "row", "not_recorded", 1),
        ]


def test_back_to_0001_with_all_jobs(url: str, populated: Database) -> None:
    with populated.read() as connection:
        before = schema(connection)
        jobs = rows_of(connection, "SELECT * FROM jobs ORDER BY id")
    upgrade(url)
    with populated.begin() as connection:
        command.downgrade(config(connection), "0001")
        assert schema(connection) == before
        assert rows_of(connection, "SELECT * FROM jobs ORDER BY id") == jobs
