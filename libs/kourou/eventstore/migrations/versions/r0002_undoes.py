"""A column for the event that an event undoes, and an index of events other than progress."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column (no broker undid anything before) and the index."""
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
    """Drop both; the log still has the content of the column."""
    op.drop_index("events_decided", "events")
    op.drop_column("events", "undoes")
