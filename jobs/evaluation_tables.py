"""The tables of schedules, of evaluations, and of what has to be told to somebody's URL.

    schedules               when an evaluation is due, and what it is
    evaluations             one row a run of an evaluation: what was asked, where it stands
    evaluation_scores       what came out, by scorer and slice
    evaluation_comparisons  how that differs from an earlier run, by scorer
    notifications           what is sent to a URL until it is taken

An evaluation outlives its schedule, as its name and a copy of what was asked are its own. That a
schedule is due becomes a row of `evaluations`, and of each time only one can: any number of
processes may look at the clock.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    literal,
)
from sqlalchemy.types import Double

from jobs.columns import lease, one_of
from jobs.records.evaluations import (
    CatchUp,
    EvaluationState,
    Interval,
    Method,
    NotificationState,
    Overlap,
    Role,
    Trigger,
    Verdict,
)
from jobs.sqltypes import SafeText, UtcDateTime
from jobs.tables import metadata as metadata  # with those of `jobs.tables`, all tables

MAX_NAME = 64  # characters of the name of a schedule or an evaluation

schedules = Table(
    "schedules",
    metadata,
    Column("id", String(64), nullable=False),
    Column("name", String(MAX_NAME), nullable=False),
    Column("cron", String(255), nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("spec", JSON, nullable=False),
    # What the data set was when the schedule was made; NULL where it may change.
    Column("dataset_hash", String(64)),
    Column("catch_up", String(16), nullable=False),
    Column("overlap", String(16), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("paused_at", UtcDateTime),
    # The first time that is not dealt with; NULL if there will be none, or while it is paused.
    Column("next_due_at", UtcDateTime),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("catch_up", CatchUp), name="catch_up"),
    CheckConstraint(one_of("overlap", Overlap), name="overlap"),
    Index(None, "name", unique=True),
    Index(None, "next_due_at"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", String(64), nullable=False),
    Column("name", String(MAX_NAME), nullable=False),
    # No foreign key: evaluations outlive their schedule.
    Column("schedule_id", String(64)),
    Column("due_at", UtcDateTime),
    Column("trigger", String(16), nullable=False),
    Column("spec", JSON, nullable=False),
    # As the schedule had it; an evaluation of other rows fails.
    Column("expected_hash", String(64)),
    Column("state", String(16), nullable=False),
    Column("job_id", String(64)),
    # The jobs of scorers that ask a model: {"<name of the scorer>": "<id>"}.
    Column("judge_jobs", JSON, nullable=False),
    Column("dataset_hash", String(64)),
    Column("dataset_rows", BigInteger),
    # Relative to the storage.
    Column("scores_path", String(255)),
    Column("verdict", String(16)),
    # Sentences of the gate: [{"rule", "passed", "sentence"}, …].
    Column("findings", JSON, nullable=False),
    Column("error_code", String(64)),
    Column("error_message", SafeText),
    *lease(),
    Column("attempts", Integer, nullable=False),
    # Nobody need look at it before.
    Column("look_at", UtcDateTime, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("blessed_at", UtcDateTime),
    # When its answers were scored once more, after its end.
    Column("rescored_at", UtcDateTime),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("schedule_id", "due_at"),
    CheckConstraint(one_of("trigger", Trigger), name="trigger"),
    CheckConstraint(one_of("state", EvaluationState), name="state"),
    CheckConstraint(one_of("verdict", Verdict), name="verdict"),
    Index(None, "name", "created_at"),
)

EVALUATION_IS_OPEN = evaluations.c.finished_at.is_(None)

# Whether a schedule began it, which may have been removed since.
OF_A_SCHEDULE = evaluations.c.schedule_id.is_not(None)

# What is to be driven, among all that ever ran.
Index(
    "ix_evaluations_open",
    evaluations.c.look_at,
    sqlite_where=EVALUATION_IS_OPEN,
    postgresql_where=EVALUATION_IS_OPEN,
)

evaluation_scores = Table(
    "evaluation_scores",
    metadata,
    Column("evaluation_id", String(64), ForeignKey("evaluations.id"), nullable=False),
    Column("scorer", String(MAX_NAME), nullable=False),
    # Both are empty for all rows together.
    Column("slice_column", SafeText(255), nullable=False),
    Column("slice_value", SafeText(255), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("missing", BigInteger, nullable=False),
    # NULL where no row has a score.
    Column("value", Double),
    Column("low", Double),
    Column("high", Double),
    Column("interval", String(16)),
    PrimaryKeyConstraint("evaluation_id", "scorer", "slice_column", "slice_value"),
    CheckConstraint(one_of("interval", Interval), name="interval"),
    CheckConstraint("rows >= 0 AND missing >= 0", name="rows"),
)

evaluation_comparisons = Table(
    "evaluation_comparisons",
    metadata,
    Column("evaluation_id", String(64), ForeignKey("evaluations.id"), nullable=False),
    Column("role", String(16), nullable=False),
    Column("scorer", String(MAX_NAME), nullable=False),
    # No foreign key: it may be removed earlier.
    Column("other_id", String(64), nullable=False),
    Column("pairs", BigInteger, nullable=False),
    Column("better", BigInteger, nullable=False),
    Column("worse", BigInteger, nullable=False),
    # Rows that only one of the two has a score for.
    Column("unpaired", BigInteger, nullable=False),
    # Ours less theirs over the pairs; NULL without any.
    Column("difference", Double),
    Column("low", Double),
    Column("high", Double),
    Column("p_value", Double),
    Column("method", String(16)),
    PrimaryKeyConstraint("evaluation_id", "role", "scorer"),
    CheckConstraint(one_of("role", Role), name="role"),
    CheckConstraint(one_of("method", Method), name="method"),
)

# No foreign keys: what is told outlives what it tells of.
notifications = Table(
    "notifications",
    metadata,
    Column("id", String(64), nullable=False),
    # A job and its version (`job_…:v1`), or an evaluation.
    Column("subject", String(96), nullable=False),
    Column("event", String(32), nullable=False),
    Column("url", SafeText(2048), nullable=False),
    Column("body", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", UtcDateTime, nullable=False),
    Column("error", SafeText),
    Column("created_at", UtcDateTime, nullable=False),
    Column("delivered_at", UtcDateTime),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("subject", "event", "url"),
    CheckConstraint(one_of("state", NotificationState), name="state"),
)

NOTIFICATION_IS_PENDING = notifications.c.state == literal(
    NotificationState.PENDING.value, literal_execute=True
)

Index(
    "ix_notifications_to_send",
    notifications.c.next_at,
    sqlite_where=NOTIFICATION_IS_PENDING,
    postgresql_where=NOTIFICATION_IS_PENDING,
)
