"""Schedules, evaluations, and what has to be told to a URL.

Revision 0004. Jobs get `notify_urls`; nothing is told of those that are there.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NOT_FINISHED = sa.text("finished_at IS NULL")
PENDING = sa.text("state = 'pending'")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("notify_urls", sa.JSON))
    _create_schedules()
    _create_evaluations()
    _create_scores()
    _create_comparisons()
    _create_notifications()
    text = {"sqlite": "", "postgresql": "::text"}[op.get_bind().dialect.name]
    for view in (EVALUATION_RUNS, EVALUATION_METRICS):
        op.execute(view.format(text=text))


def downgrade() -> None:
    op.execute("DROP VIEW evaluation_metrics")
    op.execute("DROP VIEW evaluation_runs")
    for table in (
        "notifications",
        "evaluation_comparisons",
        "evaluation_scores",
        "evaluations",
        "schedules",
    ):
        op.drop_table(table)
    op.drop_column("jobs", "notify_urls")


def _create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("cron", sa.String(255), nullable=False),
        sa.Column("timezone", sa.String(64), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("dataset_hash", sa.String(64)),
        sa.Column("catch_up", sa.String(16), nullable=False),
        sa.Column("overlap", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True)),
        sa.Column("next_due_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.CheckConstraint(
            "catch_up IN ('skip', 'latest', 'all')", name=op.f("ck_schedules_catch_up")
        ),
        sa.CheckConstraint(
            "overlap IN ('skip', 'wait', 'allow')", name=op.f("ck_schedules_overlap")
        ),
    )
    op.create_index("ix_schedules_name", "schedules", ["name"], unique=True)
    op.create_index("ix_schedules_next_due_at", "schedules", ["next_due_at"])


def _create_evaluations() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("schedule_id", sa.String(64)),
        sa.Column("due_at", sa.DateTime(timezone=True)),
        sa.Column("trigger", sa.String(16), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("expected_hash", sa.String(64)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("job_id", sa.String(64)),
        sa.Column("judge_jobs", sa.JSON, nullable=False),
        sa.Column("dataset_hash", sa.String(64)),
        sa.Column("dataset_rows", sa.BigInteger),
        sa.Column("scores_path", sa.String(255)),
        sa.Column("verdict", sa.String(16)),
        sa.Column("findings", sa.JSON, nullable=False),
        sa.Column("error_code", sa.String(64)),
        sa.Column("error_message", sa.String),
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(255)),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("look_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("blessed_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        sa.UniqueConstraint(
            "schedule_id", "due_at", name=op.f("uq_evaluations_schedule_id_due_at")
        ),
        sa.CheckConstraint(
            "trigger IN ('cron', 'manual', 'once')", name=op.f("ck_evaluations_trigger")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'answering', 'judging', 'scoring', 'completed', 'failed', "
            "'skipped', 'cancelled')",
            name=op.f("ck_evaluations_state"),
        ),
        sa.CheckConstraint(
            "verdict IN ('passed', 'regressed', 'incomplete', 'failed', 'ungated')",
            name=op.f("ck_evaluations_verdict"),
        ),
    )
    op.create_index("ix_evaluations_name_created_at", "evaluations", ["name", "created_at"])
    op.create_index(
        "ix_evaluations_open",
        "evaluations",
        ["look_at"],
        sqlite_where=NOT_FINISHED,
        postgresql_where=NOT_FINISHED,
    )


def _create_scores() -> None:
    op.create_table(
        "evaluation_scores",
        sa.Column("evaluation_id", sa.String(64), nullable=False),
        sa.Column("scorer", sa.String(64), nullable=False),
        sa.Column("slice_column", sa.String(255), nullable=False),
        sa.Column("slice_value", sa.String(255), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("missing", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("low", sa.Double),
        sa.Column("high", sa.Double),
        sa.Column("interval", sa.String(16)),
        sa.PrimaryKeyConstraint(
            "evaluation_id",
            "scorer",
            "slice_column",
            "slice_value",
            name=op.f("pk_evaluation_scores"),
        ),
        sa.ForeignKeyConstraint(
            ["evaluation_id"], ["evaluations.id"], name=op.f("fk_evaluation_scores_evaluations")
        ),
        sa.CheckConstraint(
            "interval IN ('wilson', 'bootstrap')", name=op.f("ck_evaluation_scores_interval")
        ),
        sa.CheckConstraint("rows >= 0 AND missing >= 0", name=op.f("ck_evaluation_scores_rows")),
    )


def _create_comparisons() -> None:
    op.create_table(
        "evaluation_comparisons",
        sa.Column("evaluation_id", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("scorer", sa.String(64), nullable=False),
        sa.Column("other_id", sa.String(64), nullable=False),
        sa.Column("pairs", sa.BigInteger, nullable=False),
        sa.Column("better", sa.BigInteger, nullable=False),
        sa.Column("worse", sa.BigInteger, nullable=False),
        sa.Column("unpaired", sa.BigInteger, nullable=False),
        sa.Column("difference", sa.Double),
        sa.Column("low", sa.Double),
        sa.Column("high", sa.Double),
        sa.Column("p_value", sa.Double),
        sa.Column("method", sa.String(16)),
        sa.PrimaryKeyConstraint(
            "evaluation_id", "role", "scorer", name=op.f("pk_evaluation_comparisons")
        ),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_evaluation_comparisons_evaluations"),
        ),
        sa.CheckConstraint(
            "role IN ('baseline', 'previous')", name=op.f("ck_evaluation_comparisons_role")
        ),
        sa.CheckConstraint(
            "method IN ('mcnemar', 'bootstrap')", name=op.f("ck_evaluation_comparisons_method")
        ),
    )


def _create_notifications() -> None:
    op.create_table(
        "notifications",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(96), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.String),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notifications")),
        sa.UniqueConstraint(
            "subject", "event", "url", name=op.f("uq_notifications_subject_event_url")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'delivered', 'failed')", name=op.f("ck_notifications_state")
        ),
    )
    op.create_index(
        "ix_notifications_to_send",
        "notifications",
        ["next_at"],
        sqlite_where=PENDING,
        postgresql_where=PENDING,
    )


# The views as `jobs.views` had them at this revision.
EVALUATION_RUNS = """\
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

EVALUATION_METRICS = """\
CREATE VIEW evaluation_metrics AS
SELECT
    s.evaluation_id{text} AS evaluation_id, e.name{text} AS name, e.finished_at,
    s.scorer{text} AS scorer, s.slice_column{text} AS slice_column,
    s.slice_value{text} AS slice_value, s.rows, s.missing, s.value, s.low, s.high,
    s.interval{text} AS interval
FROM evaluation_scores AS s
JOIN evaluations AS e ON e.id = s.evaluation_id"""
