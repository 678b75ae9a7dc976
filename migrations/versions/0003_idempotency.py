"""One job for each idempotency key, and what decides its answers in one hash.

Revision 0003. Jobs that are there have neither.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("fingerprint", sa.String(64)))
    op.add_column("jobs", sa.Column("idempotency_key", sa.String(200)))
    op.create_index("ix_jobs_idempotency_key", "jobs", ["idempotency_key"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_jobs_idempotency_key", "jobs")
    op.drop_column("jobs", "idempotency_key")
    op.drop_column("jobs", "fingerprint")
