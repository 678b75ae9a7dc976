"""What is polled: counted errors, workers, and the views over them.

Revision 0002. A row of `jobs` says from now on how many of its chunks are done, and what there
was already when its version began.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

HANDED_BACK = sa.text("state = 'queued' AND lease_epoch > 0")


def upgrade() -> None:
    _add_to_jobs()
    _index_handed_back("job_id", "lease_epoch")
    _create_row_errors()
    _create_workers()
    written = WRITTEN[op.get_bind().dialect.name]
    for view in (JOB_PROGRESS, JOB_ERRORS):
        op.execute(view.format(**written))


def downgrade() -> None:
    op.execute("DROP VIEW job_errors")
    op.execute("DROP VIEW job_progress")
    op.drop_table("workers")
    op.drop_table("row_errors")
    _index_handed_back("job_id")
    for column in ("tokens_at_start", "rows_at_start", "chunks_done"):
        op.drop_column("jobs", column)


def _add_to_jobs() -> None:
    for name, kind in (
        ("chunks_done", sa.Integer),
        ("rows_at_start", sa.BigInteger),
        ("tokens_at_start", sa.BigInteger),
    ):
        op.add_column("jobs", sa.Column(name, kind, nullable=False, server_default=sa.text("0")))
    # What a version does not compute was there before it: refused rows, and rows of earlier
    # versions. How many tokens these have is known as long as its own are in its chunks.
    op.execute("""
        UPDATE jobs SET
            chunks_done = (
                SELECT count(*) FROM chunks AS c
                WHERE c.job_id = jobs.id AND c.version = jobs.version AND c.state = 'done'
            ),
            rows_at_start = total_rows - (
                SELECT coalesce(sum(c.rows), 0) FROM chunks AS c
                WHERE c.job_id = jobs.id AND c.version = jobs.version
            )
    """)
    op.execute("""
        UPDATE jobs SET tokens_at_start = completion_tokens - (
            SELECT coalesce(sum(c.completion_tokens), 0) FROM chunks AS c
            WHERE c.job_id = jobs.id AND c.version = jobs.version
            AND (c.state = 'done' OR c.state = 'stopped')
        )
        WHERE version > 1
    """)


def _index_handed_back(*columns: str) -> None:
    op.drop_index("ix_chunks_handed_back", "chunks")
    op.create_index(
        "ix_chunks_handed_back",
        "chunks",
        list(columns),
        sqlite_where=HANDED_BACK,
        postgresql_where=HANDED_BACK,
    )


def _create_row_errors() -> None:
    op.create_table(
        "row_errors",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("code", sa.String(64), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("row_index", sa.BigInteger, nullable=False),
        sa.Column("line", sa.BigInteger),
        sa.Column("field", sa.String),
        sa.Column("message", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "version", "source", "code", name=op.f("pk_row_errors")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_row_errors_jobs")),
        sa.CheckConstraint("source IN ('submit', 'worker')", name=op.f("ck_row_errors_source")),
        sa.CheckConstraint("rows > 0", name=op.f("ck_row_errors_rows")),
    )


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        _number("pid"),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("software", sa.String(64), nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.String),
        sa.Column("device", sa.String(64)),
        sa.Column("dtype", sa.String(32)),
        sa.Column("chunks_held", sa.Integer, nullable=False),
        _number("rows_completed"),
        _number("rows_failed"),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("waiting", sa.Integer, nullable=False),
        _number("blocks_used"),
        _number("blocks_cached"),
        _number("blocks_total"),
        _number("prompt_tokens"),
        _number("cached_tokens"),
        _number("generated_tokens"),
        _number("preemptions"),
        sa.Column("tokens_per_second", sa.Double, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.CheckConstraint(
            "state IN ('starting', 'ready', 'draining', 'failed', 'stopped')",
            name=op.f("ck_workers_state"),
        ),
    )


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


# The views as `jobs.views` had them at this revision.
WRITTEN = {
    "sqlite": {
        "text": "",
        "elapsed": "(julianday(coalesce(j.finished_at, 'now')) - julianday(j.started_at)) * 86400",
        "handed_back": " INDEXED BY ix_chunks_handed_back",
    },
    "postgresql": {
        "text": "::text",
        "elapsed": "extract(epoch FROM coalesce(j.finished_at, statement_timestamp())"
        " - j.started_at)::double precision",
        "handed_back": "",
    },
}

JOB_PROGRESS = """\
CREATE VIEW job_progress AS
SELECT
    p.job_id, p.name, p.state, p.model, p.priority, p.version,
    p.rows_total, p.rows_completed, p.rows_failed, p.rows_cancelled, p.rows_expired, p.rows_done,
    CAST(p.rows_done * 1000 / nullif(p.rows_total, 0) AS DOUBLE PRECISION) / 10 AS percent,
    p.prompt_tokens, p.cached_tokens, p.completion_tokens,
    p.chunks_total, p.chunks_done, p.chunks_running, p.chunks_queued, p.workers,
    p.created_at, p.started_at, p.finished_at, p.deadline_at,
    CAST(round(CAST(p.elapsed AS NUMERIC), 3) AS DOUBLE PRECISION) AS elapsed_seconds,
    CAST(round(CAST(
        (p.rows_done - p.rows_at_start) / nullif(p.elapsed, 0)
    AS NUMERIC), 3) AS DOUBLE PRECISION) AS rows_per_second,
    CAST(round(CAST(
        (p.completion_tokens - p.tokens_at_start) / nullif(p.elapsed, 0)
    AS NUMERIC), 3) AS DOUBLE PRECISION) AS tokens_per_second,
    CASE WHEN p.state = 'in_progress' THEN CAST(round(CAST(
        (p.rows_total - p.rows_done) * p.elapsed / nullif(p.rows_done - p.rows_at_start, 0)
    AS NUMERIC), 0) AS DOUBLE PRECISION) END AS eta_seconds,
    p.error_code, p.error_message, p.published_version, p.output_path
FROM (
    SELECT
        j.id{text} AS job_id, j.name{text} AS name, j.state{text} AS state, j.model{text} AS model,
        j.priority, j.version,
        j.total_rows AS rows_total,
        j.completed + coalesce(b.completed, 0) AS rows_completed,
        j.failed + coalesce(b.failed, 0) AS rows_failed,
        j.cancelled + coalesce(b.cancelled, 0) AS rows_cancelled,
        j.expired + coalesce(b.expired, 0) AS rows_expired,
        j.completed + j.failed + j.cancelled + j.expired + coalesce(b.done, 0) AS rows_done,
        j.rows_at_start,
        j.prompt_tokens + coalesce(b.prompt_tokens, 0) AS prompt_tokens,
        j.cached_tokens + coalesce(b.cached_tokens, 0) AS cached_tokens,
        j.completion_tokens + coalesce(b.completion_tokens, 0) AS completion_tokens,
        j.tokens_at_start,
        j.chunks_total, j.chunks_done,
        coalesce(b.running, 0) AS chunks_running,
        j.chunks_left - coalesce(b.running, 0) AS chunks_queued,
        coalesce(b.workers, 0) AS workers,
        j.created_at, j.started_at, j.finished_at, j.deadline_at,
        {elapsed} AS elapsed,
        j.error_code{text} AS error_code, j.error_message{text} AS error_message,
        j.published_version,
        j.folder || '/v' || j.published_version AS output_path
    FROM jobs AS j
    LEFT JOIN (
        SELECT
            c.job_id,
            CAST(sum(c.running) AS INTEGER) AS running,
            CAST(count(DISTINCT c.worker) AS INTEGER) AS workers,
            CAST(sum(c.completed) AS BIGINT) AS completed,
            CAST(sum(c.failed) AS BIGINT) AS failed,
            CAST(sum(c.cancelled) AS BIGINT) AS cancelled,
            CAST(sum(c.expired) AS BIGINT) AS expired,
            CAST(sum(c.completed + c.failed + c.cancelled + c.expired) AS BIGINT) AS done,
            CAST(sum(c.prompt_tokens) AS BIGINT) AS prompt_tokens,
            CAST(sum(c.cached_tokens) AS BIGINT) AS cached_tokens,
            CAST(sum(c.completion_tokens) AS BIGINT) AS completion_tokens
        FROM (
            SELECT
                job_id, 1 AS running, lease_owner AS worker,
                completed, failed, cancelled, expired,
                prompt_tokens, cached_tokens, completion_tokens
            FROM chunks
            WHERE state = 'running'
            UNION ALL
            SELECT
                job_id, 0, NULL,
                completed, failed, cancelled, expired,
                prompt_tokens, cached_tokens, completion_tokens
            FROM chunks{handed_back}
            WHERE state = 'queued' AND lease_epoch > 0
        ) AS c
        GROUP BY c.job_id
    ) AS b ON b.job_id = j.id
) AS p"""

JOB_ERRORS = """\
CREATE VIEW job_errors AS
SELECT
    j.id{text} AS job_id, j.version, 'job' AS scope, j.error_code{text} AS code,
    CAST(NULL AS BIGINT) AS rows, CAST(NULL AS BIGINT) AS row_index, CAST(NULL AS BIGINT) AS line,
    CAST(NULL AS TEXT) AS field, j.error_message{text} AS message
FROM jobs AS j
WHERE j.state = 'failed'
UNION ALL
SELECT
    j.id{text}, j.version, 'row', e.code{text},
    e.rows + coalesce(o.rows, 0), e.row_index, e.line, e.field{text}, e.message{text}
FROM jobs AS j
JOIN row_errors AS e
    ON e.job_id = j.id AND (e.source = 'submit' OR e.version = j.version)
LEFT JOIN row_errors AS o
    ON o.job_id = j.id AND (o.source = 'submit' OR o.version = j.version)
    AND o.code = e.code AND o.source <> e.source
WHERE o.row_index IS NULL OR e.row_index < o.row_index
UNION ALL
SELECT
    j.id{text}, j.version, 'row', 'not_recorded', j.missing, NULL, NULL, NULL,
    'these rows failed under an older pagemill; `pagemill errors` lists them'
FROM (
    SELECT id, version, failed - (
        SELECT CAST(coalesce(sum(e.rows), 0) AS BIGINT)
        FROM row_errors AS e
        WHERE e.job_id = jobs.id AND (e.source = 'submit' OR e.version = jobs.version)
    ) AS missing
    FROM jobs
    WHERE failed > 0
) AS j
WHERE j.missing > 0
UNION ALL
SELECT
    j.id{text}, j.version, 'row', 'cancelled', j.cancelled, NULL, NULL, NULL,
    'the job was cancelled before these rows were answered'
FROM jobs AS j
WHERE j.cancelled > 0
UNION ALL
SELECT
    j.id{text}, j.version, 'row', 'expired', j.expired, NULL, NULL, NULL,
    'the deadline of the job passed before these rows were answered'
FROM jobs AS j
WHERE j.expired > 0"""
