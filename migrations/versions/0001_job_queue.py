"""The job queue: jobs, windows, chunks.

Revision 0001, the first.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

QUEUED = sa.text("state = 'queued'")
HANDED_BACK = sa.text("state = 'queued' AND lease_epoch > 0")
RUNNING = sa.text("state = 'running'")
UNMERGED = sa.text("merged IS NULL")


def upgrade() -> None:
    _create_jobs()
    _create_windows()
    _create_chunks()
    _create_work_indexes()


def downgrade() -> None:
    op.drop_table("chunks")
    op.drop_table("windows")
    op.drop_table("jobs")


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("input_uri", sa.String, nullable=False),
        sa.Column("folder", sa.String(255), nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("published_version", sa.Integer),
        sa.Column("input_path", sa.String(255), nullable=False),
        sa.Column("total_rows", sa.BigInteger, nullable=False),
        sa.Column("chunks_total", sa.Integer, nullable=False),
        sa.Column("chunks_left", sa.Integer, nullable=False),
        *_counts(),
        sa.Column("stop_reason", sa.String(16)),
        sa.Column("error_code", sa.String(64)),
        sa.Column("error_message", sa.String),
        *_lease(),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finalizing_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("deadline_at", sa.DateTime(timezone=True)),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.CheckConstraint(
            "state IN ('validating', 'queued', 'in_progress', 'finalizing', 'completed', 'failed',"
            " 'expired', 'cancelling', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.CheckConstraint(
            "stop_reason IN ('cancelled', 'expired')", name=op.f("ck_jobs_stop_reason")
        ),
        sa.CheckConstraint(
            "chunks_left >= 0 AND chunks_left <= chunks_total", name=op.f("ck_jobs_chunks_left")
        ),
        _counts_are_counts("jobs"),
    )
    op.create_index("ix_jobs_state_model", "jobs", ["state", "model"])
    op.create_index("ix_jobs_created_at", "jobs", ["created_at"])


def _create_windows() -> None:
    op.create_table(
        "windows",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("first_row", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("rejected", sa.String(255)),
        sa.Column("base", sa.String(255)),
        sa.Column("chunks_left", sa.Integer, nullable=False),
        sa.Column("merged", sa.String(255)),
        *_lease(),
        sa.PrimaryKeyConstraint("job_id", "version", "ordinal", name=op.f("pk_windows")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_windows_jobs")),
        sa.CheckConstraint("chunks_left >= 0", name=op.f("ck_windows_chunks_left")),
    )


def _create_chunks() -> None:
    op.create_table(
        "chunks",
        sa.Column("id", sa.String(96), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("window_ordinal", sa.Integer, nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        *_lease(),
        sa.Column("part", sa.String(255)),
        *_counts(),
        sa.Column("wake_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sends", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunks")),
        sa.ForeignKeyConstraint(
            ["job_id", "version", "window_ordinal"],
            ["windows.job_id", "windows.version", "windows.ordinal"],
            name=op.f("fk_chunks_windows"),
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'stopped')", name=op.f("ck_chunks_state")
        ),
        sa.CheckConstraint(
            "(state = 'running') = (lease_expires_at IS NOT NULL)", name=op.f("ck_chunks_lease")
        ),
        sa.CheckConstraint("(state = 'done') = (part IS NOT NULL)", name=op.f("ck_chunks_part")),
        _counts_are_counts("chunks"),
    )


def _create_work_indexes() -> None:
    op.create_index("ix_chunks_of_window", "chunks", ["job_id", "version", "window_ordinal"])
    _create_partial_index("ix_windows_to_merge", "windows", ["job_id", "version"], UNMERGED)
    _create_partial_index("ix_chunks_to_claim", "chunks", ["job_id", "ordinal"], QUEUED)
    _create_partial_index("ix_chunks_to_wake", "chunks", ["job_id", "wake_at", "ordinal"], QUEUED)
    _create_partial_index("ix_chunks_handed_back", "chunks", ["job_id"], HANDED_BACK)
    _create_partial_index("ix_chunks_running", "chunks", ["job_id"], RUNNING)


def _create_partial_index(name: str, table: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def _counts() -> list[sa.Column[Any]]:
    names = ("completed", "failed", "cancelled", "expired")
    tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names + tokens]


def _counts_are_counts(table: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        "completed >= 0 AND failed >= 0 AND cancelled >= 0 AND expired >= 0"
        " AND prompt_tokens >= 0 AND cached_tokens >= 0 AND completion_tokens >= 0",
        name=op.f(f"ck_{table}_counts"),
    )


def _lease() -> list[sa.Column[Any]]:
    return [
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(255)),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True)),
    ]
