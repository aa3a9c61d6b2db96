"""Which event does an event take back? And what was decided is found beside much progress."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column (nothing was undone through a broker before) and the index."""
    op.add_column("events", sa.Column("undoes", sa.BigInteger))
    decided = sa.text("type <> 'ProgressRecorded'")
    op.create_index(
        "events_decided",
        "events",
        ["stream", "offset", "type"],
        sqlite_where=decided,
        postgresql_where=decided,
    )


def downgrade() -> None:
    """Drop both; the log still has what is in the column."""
    op.drop_index("events_decided", "events")
    op.drop_column("events", "undoes")
