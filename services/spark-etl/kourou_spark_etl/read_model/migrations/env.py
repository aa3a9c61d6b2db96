"""Alembic's entry point: runs the revisions on the connection of read_model.schema.

Executed by Alembic only. The caller holds the write lock and the transaction.
"""

from __future__ import annotations

from alembic import context

from kourou_spark_etl.read_model.read_model import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
