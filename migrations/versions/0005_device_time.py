"""How long devices computed each job.

Revision 0005. Of the jobs and chunks that are there nobody measured it: theirs is 0. `job_progress`
ends with `device_seconds`, `tokens_per_device_hour` and `gpu_seconds`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COLUMNS = ("device_seconds", "gpu_seconds")


def upgrade() -> None:
    op.execute("DROP VIEW job_progress")
    for table in ("jobs", "chunks"):
        for name in COLUMNS:
            op.add_column(
                table, sa.Column(name, sa.Double, nullable=False, server_default=sa.text("0"))
            )
    op.execute(JOB_PROGRESS.format(**WRITTEN[op.get_bind().dialect.name]))


def downgrade() -> None:
    op.execute("DROP VIEW job_progress")
    for table in ("jobs", "chunks"):
        for name in COLUMNS:
            op.drop_column(table, name)
    before = context.script.get_revision("0003").module  # which made the view that was there
    op.execute(before.JOB_PROGRESS.format(**before.WRITTEN[op.get_bind().dialect.name]))


# The view as `jobs.views` had it at this revision.
WRITTEN = {
    "sqlite": {
        "text": "",
        "elapsed": "(julianday(coalesce(j.finished_at, 'now')) - julianday(j.started_at)) * 86400",
        "handed_back": " INDEXED BY ix_chunks_handed_back",
        "a_minute_ago": "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-60 seconds')",
        "seen": "substr(w.seen_at, 1, 19)",
    },
    "postgresql": {
        "text": "::text",
        "elapsed": "extract(epoch FROM coalesce(j.finished_at, statement_timestamp())"
        " - j.started_at)::double precision",
        "handed_back": "",
        "a_minute_ago": "statement_timestamp() - interval '60 seconds'",
        "seen": "to_char(w.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
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
    CASE WHEN p.state = 'in_progress' AND p.paused_at IS NULL THEN CAST(round(CAST(
        (p.rows_total - p.rows_done) * p.elapsed / nullif(p.rows_done - p.rows_at_start, 0)
    AS NUMERIC), 0) AS DOUBLE PRECISION) END AS eta_seconds,
    p.error_code, p.error_message, p.published_version, p.output_path,
    CASE
        WHEN p.waiting_for IS NOT NULL THEN p.waiting_for
        WHEN p.state IN ('queued', 'in_progress') AND p.paused_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM workers AS w
            WHERE w.model = p.model AND w.state NOT IN ('failed', 'stopped')
            AND w.seen_at > {a_minute_ago}
        ) THEN 'a worker of ' || p.model || coalesce((
            SELECT CASE w.state
                WHEN 'failed' THEN '; the last one failed at ' || {seen} || ' UTC: '
                    || coalesce(w.message, 'it did not say why')
                WHEN 'stopped' THEN '; the last one left at ' || {seen} || ' UTC'
                ELSE '; the last one was lost after ' || {seen} || ' UTC'
            END{text}
            FROM workers AS w WHERE w.model = p.model ORDER BY w.seen_at DESC LIMIT 1
        ), '')
    END AS waiting_for,
    p.paused_at,
    CAST(round(CAST(p.device_seconds AS NUMERIC), 3) AS DOUBLE PRECISION) AS device_seconds,
    CAST(round(CAST(
        (p.prompt_tokens - p.cached_tokens + p.completion_tokens) * 3600
        / nullif(p.device_seconds, 0)
    AS NUMERIC), 0) AS DOUBLE PRECISION) AS tokens_per_device_hour,
    CAST(round(CAST(p.gpu_seconds AS NUMERIC), 3) AS DOUBLE PRECISION) AS gpu_seconds
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
        j.folder || '/v' || j.published_version AS output_path,
        j.waiting_for{text} AS waiting_for,
        j.paused_at,
        j.device_seconds + coalesce(b.device_seconds, 0) AS device_seconds,
        j.gpu_seconds + coalesce(b.gpu_seconds, 0) AS gpu_seconds
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
            CAST(sum(c.completion_tokens) AS BIGINT) AS completion_tokens,
            sum(c.device_seconds) AS device_seconds,
            sum(c.gpu_seconds) AS gpu_seconds
        FROM (
            SELECT
                job_id, 1 AS running, lease_owner AS worker,
                completed, failed, cancelled, expired,
                prompt_tokens, cached_tokens, completion_tokens,
                device_seconds, gpu_seconds
            FROM chunks
            WHERE state = 'running'
            UNION ALL
            SELECT
                job_id, 0, NULL,
                completed, failed, cancelled, expired,
                prompt_tokens, cached_tokens, completion_tokens,
                device_seconds, gpu_seconds
            FROM chunks{handed_back}
            WHERE state = 'queued' AND lease_epoch > 0
        ) AS c
        GROUP BY c.job_id
    ) AS b ON b.job_id = j.id
) AS p"""
