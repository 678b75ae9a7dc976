"""Jobs that are gone, and whose files still have to go.

Revision 0008.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deletions",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("folder", sa.String(255), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_deletions")),
    )


def downgrade() -> None:
    op.drop_table("deletions")
