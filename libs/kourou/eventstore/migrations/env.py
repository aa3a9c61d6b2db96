"""Alembic's entry point: runs revisions on the connection of kourou.eventstore.schema.

Only Alembic executes it. The caller holds the write lock and the transaction.
"""

from __future__ import annotations

from alembic import context

from kourou.eventstore.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
