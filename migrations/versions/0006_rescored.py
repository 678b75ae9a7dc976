"""When an evaluation was scored once more, after its end.

Revision 0006. Those that are there were not.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evaluations", sa.Column("rescored_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("evaluations", "rescored_at")
