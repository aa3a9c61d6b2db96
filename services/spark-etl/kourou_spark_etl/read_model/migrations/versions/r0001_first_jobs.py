"""The table of batches, and the tables of the first jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "etl_batch",
        sa.Column("query", sa.Text, primary_key=True),
        sa.Column("batch_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("rows_written", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "latency",
        sa.Column("query", sa.Text, primary_key=True),
        sa.Column("window_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("stage", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("consumer_group", sa.Text, primary_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("sum_ms", sa.BigInteger, nullable=False),
        sa.Column("max_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "dead_letters",
        sa.Column("query", sa.Text, primary_key=True),
        sa.Column("consumer_group", sa.Text, primary_key=True),
        sa.Column("reason", sa.Text, primary_key=True),
        sa.Column("origin_topic", sa.Text, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "backlog",
        sa.Column("query", sa.Text, primary_key=True),
        sa.Column("consumer_group", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("lag", sa.BigInteger, nullable=False),
        sa.Column("end_offsets", sa.BigInteger, nullable=False),
        sa.Column("consumed_offsets", sa.BigInteger, nullable=False),
        sa.Column("in_per_s", sa.Double),
        sa.Column("out_per_s", sa.Double),
        sa.Column("growth_per_s", sa.Double),
        sa.Column("drain_s", sa.Double),
    )
    op.create_table(
        "flight_delays",
        sa.Column("query", sa.Text, primary_key=True),
        sa.Column("dimension", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("window_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("flights", sa.BigInteger, nullable=False),
        sa.Column("cancelled", sa.BigInteger, nullable=False),
        sa.Column("departed", sa.BigInteger, nullable=False),
        sa.Column("arrived", sa.BigInteger, nullable=False),
        sa.Column("late", sa.BigInteger, nullable=False),
        sa.Column("departure_delay_min", sa.BigInteger, nullable=False),
        sa.Column("arrival_delay_min", sa.BigInteger, nullable=False),
        sa.Column("seats", sa.BigInteger, nullable=False),
        sa.Column("in_rain", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop everything."""
    for name in ("flight_delays", "backlog", "dead_letters", "latency", "etl_batch"):
        op.drop_table(name)
