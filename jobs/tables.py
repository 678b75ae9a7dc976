"""The tables of the job queue.

    jobs        one row a job: its state, what decides its answers, its counts
    windows     one row for each run of input rows that is planned and merged as one, by version
    chunks      one row for each piece of work that a worker leases, by version
    row_errors  how many rows have no answer, by version, source and error code
    events      who did what to a job, and when
    deletions   jobs that are gone, and whose files still have to go
    workers     one row a worker process: what it said of itself, and when

A lease is three columns: `lease_owner`, `lease_expires_at` (by the database's clock) and
`lease_epoch`, the fencing token. An epoch only ever grows, also over retries.

Schedules and evaluations have tables of their own (`jobs.evaluation_tables`). What people poll are
the views of `jobs.views`.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    literal,
    text,
)
from sqlalchemy.types import Double

from jobs.columns import NAMES, counts, counts_are_counts, device_time, lease, one_of
from jobs.sqltypes import SafeText, UtcDateTime
from jobs.states import ChunkState, JobState

# The newest migration. `Database.check_revision` compares it with what a database says.
SCHEMA_REVISION = "0006"

metadata = MetaData(naming_convention=NAMES)

STOP_REASONS = ("cancelled", "expired")

MAX_KEY = 200  # characters of an idempotency key

# Where a row met its error: in the check of the input, or in a worker.
AT_SUBMIT, IN_WORKER = "submit", "worker"

STARTING = "starting"
DRAINING = "draining"  # it takes no more chunks
WORKER_STATES = (STARTING, "ready", DRAINING, "failed", "stopped")
LEFT = ("failed", "stopped")  # states of workers that have ended and said so

jobs = Table(
    "jobs",
    metadata,
    Column("id", SafeText(64), nullable=False),
    Column("name", SafeText),
    Column("state", String(16), nullable=False),
    Column("model", SafeText, nullable=False),
    Column("input_uri", SafeText, nullable=False),
    Column("folder", String(255), nullable=False),
    Column("options", JSON, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("published_version", Integer),
    Column("input_path", String(255), nullable=False),
    Column("total_rows", BigInteger, nullable=False),
    Column("chunks_total", Integer, nullable=False),
    Column("chunks_left", Integer, nullable=False),
    *counts(),
    Column("chunks_done", Integer, nullable=False, server_default=text("0")),
    # What there was already when the version began, so that its speed can be told.
    Column("rows_at_start", BigInteger, nullable=False, server_default=text("0")),
    Column("tokens_at_start", BigInteger, nullable=False, server_default=text("0")),
    Column("stop_reason", String(16)),
    Column("error_code", String(64)),
    Column("error_message", SafeText),
    # What the job waits for at the moment, in a sentence; NULL while it goes on.
    Column("waiting_for", SafeText),
    # The first version that has ended and whose garbage is not removed.
    Column("garbage_version", Integer),
    *lease(),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finalizing_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("deadline_at", UtcDateTime),
    Column("cancel_requested_at", UtcDateTime),
    Column("fingerprint", String(64)),
    Column("idempotency_key", String(MAX_KEY)),
    # Beside the state, which stays one of OpenAI's; only of a job that is queued or in progress.
    Column("paused_at", UtcDateTime),
    # Where its end is told: a list of URLs.
    Column("notify_urls", JSON(none_as_null=True)),
    *device_time(),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("state", JobState), name="state"),
    CheckConstraint(one_of("stop_reason", STOP_REASONS), name="stop_reason"),
    CheckConstraint("chunks_left >= 0 AND chunks_left <= chunks_total", name="chunks_left"),
    counts_are_counts(),
    Index(None, "state", "model"),
    Index(None, "created_at"),
    Index(None, "idempotency_key", unique=True),
)

windows = Table(
    "windows",
    metadata,
    Column("job_id", String(64), ForeignKey("jobs.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("first_row", BigInteger, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("rejected", String(255)),
    Column("base", String(255)),
    Column("chunks_left", Integer, nullable=False),
    Column("merged", String(255)),
    *lease(),
    PrimaryKeyConstraint("job_id", "version", "ordinal"),
    CheckConstraint("chunks_left >= 0", name="chunks_left"),
)

chunks = Table(
    "chunks",
    metadata,
    Column("id", String(96), nullable=False),
    Column("job_id", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("window_ordinal", Integer, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    *lease(),
    Column("part", String(255)),
    *counts(),
    # When the sweeper may send the next wake-up for it, and how many were sent.
    Column("wake_at", UtcDateTime, nullable=False),
    Column("sends", Integer, nullable=False),
    *device_time(),
    PrimaryKeyConstraint("id"),
    ForeignKeyConstraint(
        ["job_id", "version", "window_ordinal"],
        ["windows.job_id", "windows.version", "windows.ordinal"],
    ),
    CheckConstraint(one_of("state", ChunkState), name="state"),
    CheckConstraint("(state = 'running') = (lease_expires_at IS NOT NULL)", name="lease"),
    CheckConstraint("(state = 'done') = (part IS NOT NULL)", name="part"),
    counts_are_counts(),
)

# Rows that were refused at submit are never tried again and belong to every version; those of
# workers belong to the version that computed them. A commit adds to what is there, so that a
# job has a few rows here, however many chunks it has.
row_errors = Table(
    "row_errors",
    metadata,
    Column("job_id", String(64), ForeignKey("jobs.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("source", String(16), nullable=False),
    Column("code", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    # The first of these rows in the input, as an example.
    Column("row_index", BigInteger, nullable=False),
    Column("line", BigInteger),
    Column("field", SafeText),
    Column("message", SafeText, nullable=False),
    PrimaryKeyConstraint("job_id", "version", "source", "code"),
    CheckConstraint(one_of("source", (AT_SUBMIT, IN_WORKER)), name="source"),
    CheckConstraint("rows > 0", name="rows"),
)

# No foreign key: events outlive their job.
events = Table(
    "events",
    metadata,
    # SQLite numbers the rows of a table by itself only if their key is an INTEGER. Numbers of rows
    # that were removed are not used again.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), autoincrement=True),
    Column("job_id", SafeText(64), nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("actor", SafeText, nullable=False),
    Column("event", String(32), nullable=False),
    Column("detail", SafeText),
    PrimaryKeyConstraint("id"),
    Index(None, "job_id", "id"),
    sqlite_autoincrement=True,
)

deletions = Table(
    "deletions",
    metadata,
    Column("job_id", String(64), nullable=False),
    Column("folder", String(255), nullable=False),
    Column("deleted_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("job_id"),
)

# No index but the key, so that a heartbeat, which changes all of a row, is cheap; there are as
# many rows as workers ran in a week.
workers = Table(
    "workers",
    metadata,
    Column("id", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("model", SafeText, nullable=False),
    Column("software", String(64), nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("message", SafeText),
    Column("device", String(64)),
    Column("dtype", String(32)),
    Column("chunks_held", Integer, nullable=False),
    Column("rows_completed", BigInteger, nullable=False),
    Column("rows_failed", BigInteger, nullable=False),
    Column("running", Integer, nullable=False),
    Column("waiting", Integer, nullable=False),
    Column("blocks_used", BigInteger, nullable=False),
    Column("blocks_cached", BigInteger, nullable=False),
    Column("blocks_total", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("generated_tokens", BigInteger, nullable=False),
    Column("preemptions", BigInteger, nullable=False),
    Column("tokens_per_second", Double, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("state", WORKER_STATES), name="state"),
)

# SQLite and PostgreSQL use a partial index only where the statement spells out its condition,
# so these are rendered as literals and never sent as parameters.
CHUNK_IS_QUEUED = chunks.c.state == literal(ChunkState.QUEUED.value, literal_execute=True)
CHUNK_IS_RUNNING = chunks.c.state == literal(ChunkState.RUNNING.value, literal_execute=True)
CHUNK_IS_HANDED_BACK = CHUNK_IS_QUEUED & (chunks.c.lease_epoch > literal(0, literal_execute=True))
WINDOW_IS_UNMERGED = windows.c.merged.is_(None)
JOB_HAS_GARBAGE = jobs.c.garbage_version.is_not(None)

Index(
    "ix_jobs_with_garbage",
    jobs.c.id,
    sqlite_where=JOB_HAS_GARBAGE,
    postgresql_where=JOB_HAS_GARBAGE,
)

Index(
    "ix_windows_to_merge",
    windows.c.job_id,
    windows.c.version,
    sqlite_where=WINDOW_IS_UNMERGED,
    postgresql_where=WINDOW_IS_UNMERGED,
)
Index("ix_chunks_of_window", chunks.c.job_id, chunks.c.version, chunks.c.window_ordinal)
Index(
    "ix_chunks_to_claim",
    chunks.c.job_id,
    chunks.c.ordinal,
    sqlite_where=CHUNK_IS_QUEUED,
    postgresql_where=CHUNK_IS_QUEUED,
)
Index(
    "ix_chunks_to_wake",
    chunks.c.job_id,
    chunks.c.wake_at,
    chunks.c.ordinal,
    sqlite_where=CHUNK_IS_QUEUED,
    postgresql_where=CHUNK_IS_QUEUED,
)
# Chunks that a worker began and left: their finished rows are in the spool. With the epoch,
# SQLite prefers it to the larger index of all queued chunks.
Index(
    "ix_chunks_handed_back",
    chunks.c.job_id,
    chunks.c.lease_epoch,
    sqlite_where=CHUNK_IS_HANDED_BACK,
    postgresql_where=CHUNK_IS_HANDED_BACK,
)
# Also what finds leases that ran out: few chunks run at a time. Their expiry is in no index, so
# that a heartbeat, which changes nothing else, is cheap.
Index(
    "ix_chunks_running",
    chunks.c.job_id,
    sqlite_where=CHUNK_IS_RUNNING,
    postgresql_where=CHUNK_IS_RUNNING,
)
