"""The views that people poll: of jobs `job_progress` and `job_errors`, and two of evaluations.

Their columns are a promise, and docs/polling.md describes them; the tables below them may change.
A view holds no data: a migration that changes a table drops the views first, and makes them
again, as this module has them, at its end.
"""

from __future__ import annotations

VIEWS = ("job_progress", "job_errors", "evaluation_runs", "evaluation_metrics")

# What the two databases write differently. SQLite keeps times as text, in UTC; and it is told
# the index of the chunks that were handed back, as it may think that of all queued ones as good.
_WRITTEN = {
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

# The counts of a job's row are of what is committed. To them belong those of its chunks that
# were begun: running ones, and those whose worker left them with finished rows in the spool.
# Each of the two kinds has an index, so they are looked up apart.
_PROGRESS = """\
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

# The errors of a job as it stands: rows that were refused at submit, and rows that failed in its
# present version. A code that has both is one row, whose example comes first in the input. Jobs
# of an older pagemill have failed rows whose codes are in their files only.
_ERRORS = """\
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


_RUNS = """\
CREATE VIEW evaluation_runs AS
SELECT
    e.id{text} AS evaluation_id, e.name{text} AS name, e.state{text} AS state,
    e.verdict{text} AS verdict, e.trigger{text} AS trigger, e.due_at,
    e.job_id{text} AS job_id, j.model{text} AS model, e.dataset_hash{text} AS dataset_hash,
    e.dataset_rows, e.scores_path{text} AS scores_path,
    e.error_code{text} AS error_code, e.error_message{text} AS error_message,
    e.created_at, e.started_at, e.finished_at, e.blessed_at
FROM evaluations AS e
LEFT JOIN jobs AS j ON j.id = e.job_id"""

_METRICS = """\
CREATE VIEW evaluation_metrics AS
SELECT
    s.evaluation_id{text} AS evaluation_id, e.name{text} AS name, e.finished_at,
    s.scorer{text} AS scorer, s.slice_column{text} AS slice_column,
    s.slice_value{text} AS slice_value, s.rows, s.missing, s.value, s.low, s.high,
    s.interval{text} AS interval
FROM evaluation_scores AS s
JOIN evaluations AS e ON e.id = s.evaluation_id"""


def create_statements(dialect: str) -> tuple[str, ...]:
    """The statements that make `VIEWS`, in the SQL of `sqlite` or `postgresql`."""
    return tuple(view.format(**_WRITTEN[dialect]) for view in (_PROGRESS, _ERRORS, _RUNS, _METRICS))
