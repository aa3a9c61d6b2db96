"""Streams of events, with snapshots."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "streams",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("first_offset", sa.BigInteger, nullable=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("snapshot_bytes", sa.BigInteger, nullable=False),
        sa.Column("bytes_since_snapshot", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("as_of_ms", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("aggregate", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("trace_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("events_by_aggregate", "events", ["stream", "aggregate", "offset"])
    op.create_index("events_by_time", "events", ["stream", "as_of_ms", "offset"])
    op.create_table(
        "snapshots",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("snapshots")
    op.drop_table("events")
    op.drop_table("streams")
